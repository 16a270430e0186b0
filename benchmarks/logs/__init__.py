"""Training logs that other programs wrote -> steps and results."""
