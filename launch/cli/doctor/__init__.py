"""The subcommands of launch/doctor.py."""
