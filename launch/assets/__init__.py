"""Downloads and datasets."""
