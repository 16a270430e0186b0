"""Gets a site ready: its folders, images and environments."""
