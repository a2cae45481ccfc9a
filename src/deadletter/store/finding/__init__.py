"""Stored letters found: by what they say and where they failed, listed, counted, one of them whole."""
