"""The version of the suite; result.json carries it in its provenance."""

VERSION = "0.12.0"
