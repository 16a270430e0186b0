"""The nightly gate: the rule that judges a night, suites of benchmarks, and the simulator of the rule's errors."""
