"""Write a TensorBoard directory for all runs of a folder, keep it up to date, and serve it.

Examples:
  python launch/dashboard.py
      bring results/dashboard up to date with the runs in results/; only new data is written
  python launch/dashboard.py --serve
      also start TensorBoard, and keep the directory up to date until Ctrl-C

The first tab shows step times: a line per series of runs, the nights of each suite, and the steps of the newest runs.
HParams is a table of the newest runs. If xprof is installed, the tab Profile shows profiles (docs/how-to/share.md).
Exit codes: 0 done; 1 TensorBoard or the disk failed; 2 the request was wrong.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import shlex
import sys
from pathlib import Path

from absl import flags

from benchmarks.errors import EXIT_VALID
from benchmarks.text import Rows, aligned
from launch.cli.command import refuse_more, run_main
from launch.terminal.documents import Dashboard
from launch.terminal.output import document

OUTPUT_DIR = flags.DEFINE_string("output_dir", "results", "Folder of the runs.")
DASHBOARD_DIR = flags.DEFINE_string(
    "dashboard_dir", None, "Directory for TensorBoard. (default: dashboard/ in the folder of the runs)"
)
NEWEST = flags.DEFINE_integer("newest", 200, "Number of newest runs to show in the table and as lines.", 0)
SERVE = flags.DEFINE_boolean("serve", False, "Start TensorBoard and keep the directory up to date.")
HOST = flags.DEFINE_string("host", "localhost", "Address on which TensorBoard listens.")
PORT = flags.DEFINE_integer("port", 6006, "Port of TensorBoard; 0: any free port.", 0, 65535)
REFRESH_SECONDS = flags.DEFINE_float("refresh_seconds", 30.0, "Seconds between updates; 0: no updates.", 0.0)


def main(argv: list[str]) -> int:
    refuse_more(argv[1:], "python launch/dashboard.py --help")
    output_dir = Path(OUTPUT_DIR.value)
    logdir = Path(DASHBOARD_DIR.value) if DASHBOARD_DIR.value else output_dir / "dashboard"
    rows, known = _update(output_dir, logdir)
    more = [] if SERVE.value else [("next", shlex.join(["python", "launch/dashboard.py", "--serve", *sys.argv[1:]]))]
    print("\n".join(["dashboard", *aligned([*rows, ("files", str(logdir)), *more])]))
    if SERVE.value:
        return _serve(output_dir, logdir, known)
    document(Dashboard(logdir=str(logdir)))
    return EXIT_VALID


def _update(output_dir: Path, logdir: Path, *, quiet: bool = False) -> tuple[Rows, list[str]]:
    """Update the dashboard and return its rows and notes. Unless `quiet`, print problems with run folders."""
    from benchmarks.dashboard.update import update
    from launch.terminal.run_index import open_index, say_problems

    index = open_index(output_dir)
    if not quiet:
        say_problems(index)
    rows, notes = update(output_dir, logdir, index.select([]), newest=NEWEST.value)
    left_out = [f"{problem.folder} is skipped: {problem.reason}" for problem in index.problems()]
    return rows, [*index.notes, *left_out, *notes]


# --- serving --------------------------------------------------------------------------------------


def _serve(output_dir: Path, logdir: Path, known: list[str]) -> int:
    from benchmarks.dashboard.folders import STATE
    from launch.dashboards.serving import LOG, tensorboard, watch
    from launch.machine.processes import interrupted_once

    def refresh() -> list[str]:
        return _update(output_dir, logdir, quiet=True)[1]

    with interrupted_once():
        try:
            with tensorboard(logdir, HOST.value, PORT.value) as (address, server):
                print(f"TensorBoard  {address}/\n  table      {address}/#hparams\nCtrl-C ends it", flush=True)
                document(Dashboard(logdir=str(logdir), address=f"{address}/"))
                watch(server, logdir / STATE / LOG, refresh, known, REFRESH_SECONDS.value)
        except KeyboardInterrupt:
            print("TensorBoard ended", file=sys.stderr)
    return EXIT_VALID


if __name__ == "__main__":
    run_main(main)
