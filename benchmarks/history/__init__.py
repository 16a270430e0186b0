"""Many runs: one row each, filtered, exported, and kept in an index that can be deleted and made again."""
