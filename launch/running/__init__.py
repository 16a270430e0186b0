"""One run on this machine, from its folder to its result: its ranks, screen, telemetry and provenance."""
