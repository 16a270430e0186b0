"""Programs that run on a node or in an image, on the standard library alone."""
