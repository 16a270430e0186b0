"""The folder of one run: its files, read and written; its result recomputed from them."""
