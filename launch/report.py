"""Reports over many runs, logs and sweeps; without a subcommand, `timing`: a row for each training log.

    python launch/report.py DIR                                 a row for each training log below DIR
    python launch/report.py runs                                the runs in ./results
    python launch/report.py trace results/RUN                   where a step's time goes

Exit codes: 0 the report was made; 2 the request was wrong; 3 what was checked is not as it should be.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

from launch.cli.subcommands import Subcommands

SUBCOMMANDS = Subcommands(
    "report",
    ("timing", "runs", "archive", "verify_archive", "html", "scaling", "trace", "mlperf"),
    lambda _: "timing",
)

if __name__ == "__main__":
    SUBCOMMANDS.run()
