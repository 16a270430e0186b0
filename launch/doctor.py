"""Checks this machine, a site's nodes or XLA's flags before a run, and finds in logs why a run failed.

    python launch/doctor.py                                     this machine
    python launch/doctor.py nodes --site=NAME                   every node of a site
    python launch/doctor.py LOG...                              why a run failed: the earliest cause, and what helps

Exit codes: 0 all is well (warnings are allowed); 1 a check itself failed; 2 the request was wrong, or a flag is
refused; 3 a node fails, or the logs show a failure.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

from launch.cli.subcommands import Subcommands

SUBCOMMANDS = Subcommands(
    "doctor",
    ("machine", "nodes", "logs", "flags"),
    lambda arguments: "machine" if all(word.startswith("-") for word in arguments) else "logs",
)

if __name__ == "__main__":
    SUBCOMMANDS.run()
