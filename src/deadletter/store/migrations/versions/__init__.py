"""The steps. A published one is never changed."""
