"""Run many tasks of MLPerf's own checkers in one process, which judging.py starts.

Standard input is a JSON list of tasks. Standard output gets one JSON line per task, with the text that the checker
printed. Each task runs the checker's unchanged program.
"""

import contextlib
import io
import json
import logging
import runpy
import signal
import sys
import traceback
from importlib import import_module
from types import FrameType

PACKAGE = "mlperf_logging"


def answer(checker: str, arguments: list[str], longest_seconds: int) -> str:
    """Return the output of a checker, including a traceback, as if it ran as a separate program."""
    printed = io.StringIO()
    root = logging.getLogger()
    root.handlers.clear()  # each program adds a handler for the stderr that it had at its start
    import_module(f"{PACKAGE}.compliance_checker.mlp_compliance").enqueued_configs.clear()  # left by a crashed task
    sys.argv = [checker, *arguments]
    signal.alarm(longest_seconds)
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            if checker == "seed_checker":
                check_seeds(arguments)
            else:
                runpy.run_module(f"{PACKAGE}.{checker}", run_name="__main__")
        except SystemExit:
            pass
        except TimeoutError:
            printed.write(f"ERROR - did not end in {longest_seconds} s\n")
        except Exception:
            printed.write(traceback.format_exc())
        finally:
            signal.alarm(0)
    return printed.getvalue()


def check_seeds(arguments: list[str]) -> None:
    """Run the seed check of the package checker, which has no separate program, on one benchmark's files."""
    ruleset, *files = arguments
    logging.basicConfig(level=logging.INFO, format="%(levelname)s - %(message)s", stream=sys.stderr)
    good = import_module(f"{PACKAGE}.package_checker.seed_checker").SeedChecker(ruleset).check_seeds(files)
    logging.log(logging.INFO if good else logging.ERROR, "seeds %s", "PASSED" if good else "FAILED")


def too_long(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, too_long)
    for question in json.load(sys.stdin):
        sys.stdout.write(json.dumps(answer(**question)) + "\n")
        sys.stdout.flush()
