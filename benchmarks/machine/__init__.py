"""This machine's GPUs and driver, and the images that run on them. Pure."""
