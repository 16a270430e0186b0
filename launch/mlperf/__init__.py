"""MLPerf: the refusals of a submission, the processes of MLPerf's checkers, and the job that makes the data."""
