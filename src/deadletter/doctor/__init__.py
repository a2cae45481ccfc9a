"""The doctor: rules about a topology, what they find, and the commands that cure it. Pure."""
