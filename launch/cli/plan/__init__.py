"""The subcommands of launch/plan.py."""
