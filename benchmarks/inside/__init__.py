"""Modules that are loaded by path inside a framework's environment, where only the standard library is certain."""
