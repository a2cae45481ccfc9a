"""jq programs in a process of their own: bounded in time, memory, input and sight. Knows jq, not letters."""
