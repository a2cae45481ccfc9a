"""Groups in the store: counted, listed, changed by people, judged, made anew by other rules."""
