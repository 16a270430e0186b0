"""launch/environments/pythons.py: the search for a Python that fits, among programs that do not."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.backend import LockFile
from benchmarks.errors import RequestError
from launch.environments import pythons

Tiny = Any  # the fixture of conftest.py
Hide = Callable[[str], None]
REAL = os.path.realpath(sys.executable)
THIS_PYTHON = f'exec {REAL} "$@"'


def write_program(path: Path, text: str, mode: int = 0o755) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)


def lock(first: tuple[int, int], last: tuple[int, int]) -> LockFile:
    return LockFile(Path("x/requirements.lock"), first, last, size_gb=1)


def test_programs_that_are_no_good_do_not_stop_the_search(tiny: Tiny, no_python_but: Hide) -> None:
    spec = tiny.spec()
    bad, good = tiny.place / "bad", tiny.place / "good"
    name = f"python{tiny.python_version[0]}.{tiny.python_version[1]}"
    write_program(bad / name, "echo 'pyenv: command not found' >&2; exit 127")
    write_program(bad / "python3", "echo no JSON")
    write_program(bad / "python", "no one may start this", mode=0o644)
    write_program(good / "python3", THIS_PYTHON)
    no_python_but(f"{bad}:relative::{tiny.place / 'missing'}:{good}")
    assert pythons.find_pythons(spec.locks) == {tiny.python_version: Path(REAL)}


def test_program_that_hangs_is_looked_for_in_a_bounded_time(
    tiny: Tiny, no_python_but: Hide, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(tiny.place / "bad" / "python3", "exec /bin/sleep 60")
    no_python_but(str(tiny.place / "bad"))
    monkeypatch.setattr(pythons, "SEARCH_SECONDS", 0.5)
    with pytest.raises(RequestError, match="gets no answer") as caught:
        pythons.find_pythons([lock((3, 12), (3, 12))])
    assert str(tiny.place / "bad") in caught.value.where


def test_pyenv_is_looked_at_where_it_is_and_its_newest_first(
    tiny: Tiny, no_python_but: Hide, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_python_but("")
    folders = [tiny.place / "pyenv" / "versions" / version / "bin" for version in ("3.9.18", "3.12.9", "3.12.10")]
    for folder in folders:
        write_program(folder / "python", THIS_PYTHON)
    assert pythons.find_pythons(tiny.spec().locks) == {}
    monkeypatch.setenv("PYENV_ROOT", str(tiny.place / "pyenv"))
    assert pythons._folders()[1:] == folders[::-1]
    assert pythons.find_pythons(tiny.spec().locks) == {tiny.python_version: Path(REAL)}


def test_oldest_python_is_preferred() -> None:
    assert pythons.fitting_versions(lock((3, 11), (3, 12))) == [(3, 11), (3, 12)]
    assert pythons.fitting_versions(lock((3, 12), (3, 13)), lock((3, 11), (3, 12))) == [(3, 11), (3, 12), (3, 13)]


def test_no_python_at_all_says_exactly_what_to_install(no_python_but: Hide) -> None:
    no_python_but("")
    error = pythons.no_python("jax-maxtext", [lock((3, 12), (3, 13))])
    assert error.exit_code == 2
    assert str(error) == (
        "no Python 3.12 to 3.13 was found to make the environment 'jax-maxtext' with\n"
        "  where: looked at PATH, pyenv, uv and the system's folders: no Python at all\n"
        "  why:   the packages in requirements.lock are pinned for Python 3.12 to 3.13\n"
        f"  next:  {sys.executable} -m uv python install 3.12     (or install one by other means)"
    )


def test_each_version_that_was_found_is_named_once(tiny: Tiny, no_python_but: Hide) -> None:
    for name in ("python3", "python"):
        write_program(tiny.place / "path" / name, THIS_PYTHON)
    no_python_but(str(tiny.place / "path"))
    error = pythons.no_python("tiny-env", [lock((3, 98), (3, 99))])
    assert error.where.count("cpython-") == 1
    assert str(tiny.place / "path") in error.where


def test_a_folder_that_cannot_be_read_has_no_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path, _pattern: str) -> list[Path]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "glob", refuse)
    assert pythons._found_in(tmp_path, "versions/*/bin/python") == []
