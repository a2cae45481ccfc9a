"""The page: what the desk shows to people. HTML from the server, readable without scripts; one module per
subject, one stylesheet, one frame around all."""
