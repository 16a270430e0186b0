"""Installs what a lock file pins, with pip: nothing else, nothing built here, every hash proved."""

import re

from benchmarks.errors import RunError
from launch import pip_failures
from launch.making_progress import Progress
from launch.programs import Making, failure, run


def install(making: Making, progress: Progress) -> None:
    watch = _PipWatch(making, progress)
    pip = [str(making.python), "-I", "-m", "pip", "install", "--require-hashes", "--no-deps"]
    command = [*pip, "--only-binary", ":all:", "-r", str(making.spec.lock_file)]
    ended = run(making, command, watch.line, watch.tick)
    if ended.exit_code != 0:
        raise explain(making, ended.lines)


class _PipWatch:
    """Turns pip's lines, and what it has installed so far, into progress."""

    def __init__(self, making: Making, progress: Progress) -> None:
        self._making = making
        self._progress = progress
        self._total = len(re.findall(r"^[^\s#]+==", making.spec.lock_file.read_text(), re.MULTILINE))
        self._collected = 0
        self._installing = False
        self._installed_before = self._installed()

    def line(self, text: str) -> None:
        if text.startswith("Ignoring "):  # its marker names another platform or Python
            self._total -= 1
        elif text.startswith("Collecting "):
            self._collected += 1
        elif text.startswith("Installing collected packages"):
            self._installing = True

    def tick(self) -> None:
        if self._installing:
            # pip is silent while it installs; a package's .dist-info folder is what it writes last.
            self._progress("installing", self._installed() - self._installed_before, self._total)
        else:
            self._progress("downloading", self._collected, self._total)

    def _installed(self) -> int:
        return sum(1 for _ in self._making.path.glob("lib/python*/site-packages/*.dist-info"))


def explain(making: Making, lines: list[str]) -> RunError:
    """Why pip failed, in plain words."""
    text = "\n".join(lines)
    known = pip_failures.recognise(text)
    if known and known.failure is pip_failures.NOT_OFFERED and "(from versions: none)" in text:
        known = pip_failures.recognise("\n".join([text, *_ask_loudly(making, known.found)]))
    if known is None:
        return failure(making, "pip", lines)
    return RunError(
        f"environment '{making.spec.name}': {known.failure.what.format(known.found)}",
        where=f"pip's log: {making.log_file}",
        why=known.failure.why,
        next_command=known.failure.next_command.format(
            python=f"python{making.version_text}", lock_file=making.spec.lock_file
        ),
    )


def _ask_loudly(making: Making, requirement: str) -> list[str]:
    """What pip says of one requirement at its loudest.

    Otherwise an index that forbids, or that cannot be reached and is not asked again, looks to pip
    like one that lacks the package.
    """
    pip = [str(making.python), "-I", "-m", "pip", "download", "-vv", "--no-deps", "--retries=0"]
    folder = making.path / "asked_again"
    return run(making, [*pip, "--timeout=15", "--only-binary=:all:", f"--dest={folder}", requirement]).lines
