"""The REST API, a module per subject. The answers are those of `operations`, as they stand."""
