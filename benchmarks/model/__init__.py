"""Predicts a run before it starts: memory, a lower bound of the step time, an estimate and layouts. No I/O."""
