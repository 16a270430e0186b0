"""Two sides, each one run or several: how they differ, whether that is shown, and what may have caused it."""
