"""MLPerf: what starts processes. The refusals of a run, the package's checkers, and the job that makes the data."""
