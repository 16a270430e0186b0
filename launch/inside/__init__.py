"""Programs that run on a node or in an image, and import only the standard library."""
