"""MLPerf's own checkers, many tasks in one process: imports cost more than the checks. package.py starts it.

Standard input holds a list of tasks, standard output one JSON line for each, its text. Each task runs the checker's
own program, by its own rules. One thing is made cheaper: the checkers find the last token of a line with a pattern
whose time grows with the square of the line's length; `str.rfind` finds the same place.
"""

import contextlib
import io
import json
import logging
import re
import runpy
import signal
import sys
import traceback
from importlib import import_module
from types import FrameType
from typing import Any

PACKAGE = "mlperf_logging"


class LastToken:
    """The module `re` for a parser of the package, with the one substitution that it does on every line."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __getattr__(self, name: str) -> Any:
        return getattr(re, name)

    def sub(self, pattern: str, replacement: str, line: str) -> str:
        place = line.rfind(self._token)
        if (pattern, replacement) != (f".*{self._token}", self._token) or place < 0 or "\n" in line[:-1]:
            return re.sub(pattern, replacement, line)
        return line[place:]


def make_cheap() -> None:
    """The substitution, in every module of the package that is loaded and does it."""
    for name, module in list(sys.modules.items()):
        if name.startswith(PACKAGE) and getattr(module, "re", None) is re and hasattr(module, "TOKEN"):
            module.re = LastToken(module.TOKEN)  # type: ignore[attr-defined]


def answer(checker: str, arguments: list[str], longest_seconds: int) -> str:
    """What a checker prints, its traceback included; as a program of its own would print it."""
    printed = io.StringIO()
    root = logging.getLogger()
    root.handlers.clear()  # each program adds its own, and writes to the stream of its time
    import_module(f"{PACKAGE}.compliance_checker.mlp_compliance").enqueued_configs.clear()  # a crash leaves some
    sys.argv = [checker, *arguments]
    signal.alarm(longest_seconds)
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            check_seeds(arguments) if checker == "seed_checker" else run(checker)
        except SystemExit:
            pass
        except TimeoutError:
            printed.write(f"ERROR - did not end in {longest_seconds} s\n")
        except Exception:
            printed.write(traceback.format_exc())
        finally:
            signal.alarm(0)
    return printed.getvalue()


def run(checker: str) -> None:
    module = f"{PACKAGE}.{checker}"
    import_module(f"{module}.{'mlp_compliance' if checker == 'compliance_checker' else checker}")
    make_cheap()
    runpy.run_module(module, run_name="__main__")


def check_seeds(arguments: list[str]) -> None:
    """The package checker's, which has no program: of the files of one benchmark on one system."""
    ruleset, *files = arguments
    logging.basicConfig(level=logging.INFO, format="%(levelname)s - %(message)s", stream=sys.stderr)
    seeds = import_module(f"{PACKAGE}.package_checker.seed_checker")
    make_cheap()
    good = seeds.SeedChecker(ruleset).check_seeds(files)
    logging.log(logging.INFO if good else logging.ERROR, "seeds %s", "PASSED" if good else "FAILED")


def too_long(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, too_long)
    for question in json.load(sys.stdin):
        sys.stdout.write(json.dumps(answer(**question)) + "\n")
        sys.stdout.flush()
