"""Replays that begin by themselves: rules, and the health that some of them wait for."""
