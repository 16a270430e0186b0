"""Read the logs of any program: find and open log files, and find their lines, steps and attempts."""
