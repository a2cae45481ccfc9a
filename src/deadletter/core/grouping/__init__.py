"""Which letters failed for the same reason: stacks read, messages masked, one fingerprint of what is left."""
