"""Prepare a site: write its file, and make its folders, images and environments."""
