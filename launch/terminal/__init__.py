"""What commands print and where Stepmark keeps its files: below every other folder of launch."""
