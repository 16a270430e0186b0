"""The flags that several commands share, what they list, and where things are kept."""
