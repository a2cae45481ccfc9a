"""What may go home now: gates, budgets, letters that are held, and the release of those that are due."""
