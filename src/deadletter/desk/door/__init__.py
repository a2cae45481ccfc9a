"""Coming in to the desk: names, tokens, sessions, accounts, and what is refused before anybody looks."""
