"""Who may do what, and see what: roles, rights, scope."""
