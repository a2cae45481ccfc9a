"""The pure rooms: no I/O, no clock, no randomness, no logging. `now` and `dice` are arguments."""
