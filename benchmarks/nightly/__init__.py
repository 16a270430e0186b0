"""The nights of a suite: its cells, the rule that judges them, and the report."""
