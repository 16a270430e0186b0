"""Floor 3: thin absl scripts, the sites where runs happen, and what a person sees; no figures, no formulas."""
