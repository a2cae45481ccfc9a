"""What a running service does with letters: for now, answering what their bodies must answer."""
