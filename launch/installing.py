"""Installs what a lock file pins, with pip: nothing else, every hash proved.

Nothing is built here but what the lock file itself names with pip's own `--no-binary`, since it has
no wheel: that is built by the setuptools of the same lock file, so that pip fetches nothing unproved.
"""

import re
from pathlib import Path

from benchmarks.errors import RunError
from launch import pip_failures
from launch.making_progress import Progress
from launch.programs import Ended, Making, failure, run

WHEELS = ("--no-deps", "--only-binary", ":all:")
BUILT = re.compile(r"^--no-binary ", re.MULTILINE)
BUILDER = re.compile(r"^setuptools==(?:.*\\\n)*.*\n", re.MULTILINE)  # its pin and all its hashes


def is_offered(making: Making, progress: Progress) -> bool:
    """Whether pip, as it is set up on this machine, offers what the lock file needs it to."""
    wanted = making.lock_file.offered
    if not wanted:
        return True
    progress(f"asking pip for {wanted}")
    ended = run(making, [*_pip(making), "install", "--dry-run", *WHEELS, wanted])
    if ended.exit_code == 0:
        return True
    known = _recognise(making, ended.lines)
    # A network that is down must not pass for an answer: it would send people to the larger build.
    if known is None or known.failure is not pip_failures.NOT_OFFERED:
        raise explain(making, ended.lines)
    return False


def install(making: Making, progress: Progress) -> None:
    lock_text = making.lock_file.path.read_text()
    if re.search(BUILT, lock_text):
        builder = making.path / "builder.lock"
        builder.write_text("".join(re.findall(BUILDER, lock_text)))
        _expect_success(making, run(making, _install(making, builder)))
    watch = _PipWatch(making, progress)
    _expect_success(making, run(making, _install(making, making.lock_file.path), watch.line, watch.tick))


def _install(making: Making, lock_file: Path) -> list[str]:
    return [*_pip(making), "install", "--require-hashes", *WHEELS, "--no-build-isolation", "-r", str(lock_file)]


def _expect_success(making: Making, ended: Ended) -> None:
    if ended.exit_code != 0:
        raise explain(making, ended.lines)


def _pip(making: Making) -> list[str]:
    return [str(making.python), "-I", "-m", "pip"]


class _PipWatch:
    """Turns pip's lines, and what it has installed so far, into progress."""

    def __init__(self, making: Making, progress: Progress) -> None:
        self._making = making
        self._progress = progress
        self._total = len(re.findall(r"^[^\s#]+==", making.lock_file.path.read_text(), re.MULTILINE))
        self._collected = 0
        self._installing = False
        self._installed_before = self._installed()

    def line(self, text: str) -> None:
        # Its marker names another platform or Python, or it is the builder.
        if text.startswith(("Ignoring ", "Requirement already satisfied")):
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
    known = _recognise(making, lines)
    if known is None:
        return failure(making, "pip", lines)
    return RunError(
        f"environment '{making.spec.name}': {known.failure.what.format(known.found)}",
        where=f"pip's log: {making.log_file}",
        why=known.failure.why,
        next_command=known.failure.next_command.format(
            python=f"python{making.version_text}", lock_file=making.lock_file.path
        ),
    )


def _recognise(making: Making, lines: list[str]) -> pip_failures.Known | None:
    text = "\n".join(lines)
    known = pip_failures.recognise(text)
    if known and known.failure is pip_failures.NOT_OFFERED and "(from versions: none)" in text:
        return pip_failures.recognise("\n".join([text, *_ask_loudly(making, known.found)]))
    return known


def _ask_loudly(making: Making, requirement: str) -> list[str]:
    """What pip says of one requirement at its loudest.

    Otherwise an index that forbids, or that cannot be reached and is not asked again, looks to pip
    like one that lacks the package.
    """
    loudly = ["download", "-vv", "--retries=0", "--timeout=15", f"--dest={making.path / 'asked_again'}"]
    return run(making, [*_pip(making), *loudly, *WHEELS, requirement]).lines
