"""THE safe move: from one queue to wherever a decision says; confirmed there, then acked here."""
