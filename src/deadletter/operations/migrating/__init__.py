"""A queue replaced by one with other arguments, with all its letters."""
