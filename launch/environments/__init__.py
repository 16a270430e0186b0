"""What runs are started with: virtual environments, containers and the user's own Python (runtime.py)."""
