"""Estimates from published rows, and compiling a step here."""
