"""Read the logs of any program: find and open the files, then find their lines, steps and attempts."""
