"""Results and plans as labelled lines of text. Pure."""
