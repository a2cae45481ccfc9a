"""What becomes of a failed letter: its deaths, origin and failure, the policies, and the decision."""
