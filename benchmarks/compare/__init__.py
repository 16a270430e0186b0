"""Compares two sides, each with one or several runs: their differences, the verdict, and the likely causes."""
