"""The nights of a suite: run or submitted, waited for, judged, written down; and installed where nobody types."""
