"""The library of Stepmark: values, configs, and one folder for each capability. It starts no process."""

VERSION = "0.13.0"
