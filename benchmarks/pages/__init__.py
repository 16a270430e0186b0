"""Reports: one HTML file for a run, a comparison, a sweep or a night. It needs no network."""
