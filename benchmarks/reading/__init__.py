"""Reading logs of any program: which files, how they are stored, lines, steps and attempts."""
