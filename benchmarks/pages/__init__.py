"""Reports for people: one HTML file for a run, a comparison, a sweep or a night, that needs no network."""
