"""Programs that run on a node or in an image, with only the standard library."""
