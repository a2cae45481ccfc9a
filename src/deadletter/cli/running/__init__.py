"""`dlq run module:app`: a consumer's processes, started, watched, ended and told of in one place."""
