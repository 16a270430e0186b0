"""The edges of MLPerf: the installed mlperf-logging package, its checkers and its logger."""
