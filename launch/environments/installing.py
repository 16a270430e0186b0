"""Installs what a lock file pins, with uv: nothing else, every hash proved.

Nothing is built here but what the lock file itself names with `--no-binary`, since it has no wheel:
that is built by the setuptools of the same lock file, so that uv fetches nothing unproved.
"""

import re

from benchmarks.errors import RunError
from launch.environments import uv_failures
from launch.environments.making_progress import Progress
from launch.environments.programs import Ended, Making, failure, run
from launch.environments.uv_settings import without_index

BUILT = re.compile(r"^--no-binary ", re.MULTILINE)
PIN = re.compile(r"^([A-Za-z0-9._\-\[\]]+)==(?!=)", re.MULTILINE)
BUILDER = re.compile(r"^setuptools===(?:.*\\\n)*.*\n", re.MULTILINE)  # its pin and all its hashes


def is_offered(making: Making, progress: Progress) -> bool:
    """Whether uv, as this machine is set up, is offered what the lock file needs."""
    wanted = making.lock_file.offered
    if not wanted:
        return True
    progress(f"asking for {wanted}")
    ended = run(making, [*_install(making), "--dry-run", wanted])
    if ended.exit_code == 0:
        return True
    known = _recognise(making, ended.lines)
    # A network that is down must not pass for an answer: it would send people to the larger build.
    if known is None or known.failure is not uv_failures.NOT_OFFERED:
        raise explain(making, ended.lines)
    return False


def install(making: Making, progress: Progress) -> None:
    lock_text = making.lock_file.path.read_text()
    # The exact version: uv takes torch==2.13.0 as met by 2.13.0+cpu, if an index has it.
    pins = PIN.sub(r"\1===", lock_text)
    if re.search(BUILT, lock_text):
        _expect_success(
            making, run(making, _install_pins(making, "builder.lock", "".join(re.findall(BUILDER, pins))))
        )
    watch = _UvWatch(making, progress)
    _expect_success(making, run(making, _install_pins(making, "pins.lock", pins), watch.line, watch.tick))


def _install_pins(making: Making, name: str, pins: str) -> list[str]:
    file = making.path / name
    file.write_text(pins)
    return [*_install(making), "--require-hashes", "--requirements", str(file)]


def _install(making: Making) -> list[str]:
    wheels = ["--no-deps", "--only-binary", ":all:", "--no-build-isolation"]
    return [*making.uv_pip("install"), *wheels, *without_index(making.pip)]


def _expect_success(making: Making, ended: Ended) -> None:
    if ended.exit_code != 0:
        raise explain(making, ended.lines)


class _UvWatch:
    """Turns uv's lines, and what it has installed so far, into progress."""

    def __init__(self, making: Making, progress: Progress) -> None:
        self._making = making
        self._progress = progress
        self._total: int | None = None
        self._downloads = self._downloaded = 0  # of the packages above 1 MB: uv names no others
        self._installed_before = self._installed()

    def line(self, text: str) -> None:
        if resolved := re.match(r"Resolved (\d+) ", text):
            self._total = int(resolved[1])
        self._downloads += text.startswith("Downloading ")
        self._downloaded += text.startswith(" Downloaded ")

    def tick(self) -> None:
        installed = self._installed()
        if installed > self._installed_before:
            self._progress("installing", installed, self._total)
        else:
            self._progress("downloading", self._downloaded, self._downloads if self._downloaded else None)

    def _installed(self) -> int:
        return sum(1 for _ in self._making.path.glob("lib/python*/site-packages/*.dist-info"))


def explain(making: Making, lines: list[str]) -> RunError:
    """Why uv failed, in plain words."""
    known = _recognise(making, lines)
    if known is None:
        return failure(making, "uv", lines)
    return RunError(
        f"environment '{making.spec.name}': {known.failure.what.format(known.found)}",
        where=f"uv's log: {making.log_file}",
        why=known.failure.why,
        next_command=known.failure.next_command.format(
            python=f"python{making.version_text}", lock_file=making.lock_file.path
        ),
    )


def _recognise(making: Making, lines: list[str]) -> uv_failures.Known | None:
    known = uv_failures.recognise("\n".join(lines))
    if known and known.failure is uv_failures.NOT_OFFERED:
        # Where all indexes are asked, uv takes one that forbids for one that lacks the package.
        first = ["--dry-run", "--index-strategy", "first-index", known.found]
        return uv_failures.recognise("\n".join([*lines, *run(making, [*_install(making), *first]).lines]))
    return known
