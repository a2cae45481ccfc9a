"""`dlq topology plan | diff | apply | draw`."""
