"""Run sweeps and nights, which consist of many runs. Both use the same scheduler and locks."""
