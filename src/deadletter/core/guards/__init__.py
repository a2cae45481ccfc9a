"""Guards: what keeps retries from doing harm. Pure; the time is an argument."""
