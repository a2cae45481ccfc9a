"""Who may do what at the desk, and see what: persons, rights of routes, what is asked in their name."""
