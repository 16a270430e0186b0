"""The runtimes of runs: virtual environments, containers and the user's own Python. runtime.py has the interface."""
