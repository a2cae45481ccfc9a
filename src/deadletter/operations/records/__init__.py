"""What people ask of stored letters, once: on the store itself, or over HTTP from the service that has it."""
