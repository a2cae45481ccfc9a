"""The broker's side of the house: the supervised session, the courier (the one safe move), a private node."""
