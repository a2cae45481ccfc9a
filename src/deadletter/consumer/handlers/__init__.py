"""Calling the application's handlers: signatures, threads, time limits, ids, and what their end means."""
