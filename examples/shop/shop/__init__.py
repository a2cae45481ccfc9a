"""A small shop, to see how the library is used."""
