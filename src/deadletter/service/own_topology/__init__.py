"""What the service declares for itself, and how it is kept: policies, limits, housekeeping."""
