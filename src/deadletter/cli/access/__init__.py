"""Who may come in: tokens made, and the door of `dlq serve`."""
