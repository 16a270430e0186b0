"""Runs, logs and traces of a folder, read for reports."""
