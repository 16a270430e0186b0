"""Run a night, which is one execution of a suite, and show its report."""
