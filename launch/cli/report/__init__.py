"""The subcommands of launch/report.py."""
