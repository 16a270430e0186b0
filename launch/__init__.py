"""Floor 3: thin absl scripts, the sites where runs happen, and what the user sees; no metrics, no formulas."""
