"""The consumers that are compared: ours, and measuring sticks beside it.

All do the same: decode a body of JSON, do nothing, ack. Where every tenth fails, ours raises; the others
publish it to a retry queue, wait for the confirm and ack, as a careful person would write it with that
library.
"""
