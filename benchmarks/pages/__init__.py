"""Reports for people: one HTML file for a run, a comparison, a sweep or a night, that needs no network."""

from benchmarks.pages.comparison import comparison_page
from benchmarks.pages.night import night_page
from benchmarks.pages.page import page
from benchmarks.pages.run import run_page
from benchmarks.pages.sweep import sweep_page

__all__ = ["comparison_page", "night_page", "page", "run_page", "sweep_page"]
