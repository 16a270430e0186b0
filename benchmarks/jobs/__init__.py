"""What a queued run leaves behind, and what became of each of its attempts."""
