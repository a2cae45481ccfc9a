"""`dlq groups, letters, show, resolve, mute, snooze, reopen, category, note, merge, split, discard`."""
