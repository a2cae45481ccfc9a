"""The consumer library: a handler, what its errors mean, and what becomes of its messages."""
