"""Sending stored letters back: states, pace, target, edits, differences, recipes, rules. Pure."""
