"""Many runs: sweeps, nights, and the scheduler and locks that they share."""
