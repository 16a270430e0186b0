"""Compare two sides, each with one run or several: how they differ, the verdict, and the likely causes."""
