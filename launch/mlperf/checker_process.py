"""MLPerf's own checkers, many tasks in one process. judging.py starts it.

Standard input holds a list of tasks, standard output one JSON line for each, its text. Each task runs the checker's
own program, by its own rules.
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
    root.handlers.clear()  # each program adds its own, and writes to the stream of its time
    import_module(f"{PACKAGE}.compliance_checker.mlp_compliance").enqueued_configs.clear()  # a crash leaves some
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
    """The package checker's, which has no program: of the files of one benchmark on one system."""
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
