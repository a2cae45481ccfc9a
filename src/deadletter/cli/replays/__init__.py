"""`dlq replay, replays, deployed, deploys, edit, recipes`: letters sent back, repaired where needed."""
