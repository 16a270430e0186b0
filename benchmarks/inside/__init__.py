"""Modules that are loaded by path inside a framework's environment. They import only the standard library."""
