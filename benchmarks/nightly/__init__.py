"""Nights of a suite: the cells of the suite, the rule that judges each night, and the report."""
