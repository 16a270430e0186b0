"""Make reports: one HTML file, which needs no network, for a run, a comparison, a sweep or a night."""
