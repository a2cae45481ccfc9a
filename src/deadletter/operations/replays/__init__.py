"""What a person asks about replays, once each: begun, watched, turned; the look before one."""
