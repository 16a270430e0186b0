"""TensorBoard's log directory over all runs: its files, its charts, its server."""
