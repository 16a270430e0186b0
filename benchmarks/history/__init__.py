"""Many runs: an index with one row for each, filters, exports and archives. The index can always be recreated."""
