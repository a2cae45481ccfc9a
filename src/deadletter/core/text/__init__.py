"""Text that people write and read: durations, patterns, and foreign text made safe to show."""
