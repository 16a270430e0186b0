"""Profilers' traces -> where the time of a step goes. Pure: bytes and rows in, values and text out."""
