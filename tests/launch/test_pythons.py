"""launch/pythons.py: the search for a Python that fits, among programs that do not."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.backend import LockFile
from launch import pythons

Tiny = Any  # the fixture of conftest.py
Hide = Callable[[str], None]


def write_program(path: Path, text: str, mode: int = 0o755) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)


def lock(first: tuple[int, int], last: tuple[int, int]) -> LockFile:
    return LockFile(Path("x/requirements.lock"), first, last, size_gb=1)


def test_programs_that_are_no_good_do_not_stop_the_search(
    tiny: Tiny, no_python_but: Hide, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tiny.spec()
    real = os.path.realpath(sys.executable)
    bad, good = tiny.place / "bad", tiny.place / "good"
    bad.mkdir()
    good.mkdir()
    name = f"python{tiny.python_version[0]}.{tiny.python_version[1]}"
    write_program(bad / name, "echo 'pyenv: command not found' >&2; exit 127")
    write_program(bad / "python3", "/bin/sleep 60; true")
    write_program(bad / "python", "no one may start this", mode=0o644)
    write_program(good / "python3", f'exec {real} "$@"')
    no_python_but(f"{bad}:relative::{tiny.place / 'missing'}:{good}")
    monkeypatch.setattr(pythons, "PROBE_SECONDS", 0.5)
    assert pythons.find_pythons(spec.locks).fitting == {tiny.python_version: good / "python3"}


def test_each_fitting_version_is_found_with_the_newest_patch_of_pyenv(
    tiny: Tiny, no_python_but: Hide, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_python_but(str(tiny.place / "path"))
    monkeypatch.setenv("PYENV_ROOT", str(tiny.place / "pyenv"))
    (tiny.place / "path").mkdir()
    write_program(tiny.place / "path" / "python3", "echo 3.13 CPython 0")
    for version in ("3.9.18", "3.12.9", "3.12.10"):
        folder = tiny.place / "pyenv" / "versions" / version / "bin"
        folder.mkdir(parents=True)
        write_program(folder / "python", f"echo {version.rpartition('.')[0]} CPython 0")
    newer, older = lock((3, 12), (3, 13)), lock((3, 9), (3, 9))
    in_path, in_pyenv = tiny.place / "path" / "python3", tiny.place / "pyenv" / "versions"
    found = pythons.find_pythons([newer])
    assert found.fitting == {(3, 12): in_pyenv / "3.12.10/bin/python", (3, 13): in_path}
    assert pythons.find_pythons([newer, older]).fitting == found.fitting | {(3, 9): in_pyenv / "3.9.18/bin/python"}
    monkeypatch.delenv("PYENV_ROOT")
    assert pythons.find_pythons([newer]).fitting == {(3, 13): in_path}


def test_oldest_python_is_preferred() -> None:
    assert pythons.fitting_versions(lock((3, 11), (3, 12))) == [(3, 11), (3, 12)]
    assert pythons.fitting_versions(lock((3, 12), (3, 13)), lock((3, 11), (3, 12))) == [(3, 11), (3, 12), (3, 13)]


def test_no_python_at_all_says_exactly_what_to_install(no_python_but: Hide) -> None:
    no_python_but("")
    locks = [lock((3, 12), (3, 13))]
    error = pythons.no_python("jax-maxtext", locks, pythons.find_pythons(locks))
    assert error.exit_code == 2
    assert str(error) == (
        "no Python 3.12 to 3.13 was found to make the environment 'jax-maxtext' with\n"
        "  where: looked at PATH, pyenv, uv and the system's folders: no Python at all\n"
        "  why:   the packages in requirements.lock are pinned for Python 3.12 to 3.13\n"
        "  next:  apt-get install python3.12 python3.12-venv\n"
        "         or: uv python install 3.12\n"
        "         or: pyenv install 3.12"
    )


def test_every_program_looked_at_is_named_with_its_fault(tiny: Tiny, no_python_but: Hide) -> None:
    spec = tiny.spec()
    folder = tiny.place / "path"
    folder.mkdir()
    version = ".".join(map(str, tiny.python_version))
    write_program(folder / f"python{version}", f"echo {version} CPython 0; exit 1")
    write_program(folder / "python3", "echo 2.7 CPython 0")
    write_program(folder / "python", f"echo {version} PyPy 0")
    no_python_but(str(folder))
    error = pythons.no_python(spec.name, spec.locks, pythons.find_pythons(spec.locks))
    assert f"python{version} is Python {version} without venv and ensurepip" in error.where
    assert "python3 is Python 2.7" in error.where
    assert "python is PyPy, not CPython" in error.where
    assert f"apt-get install python{version} python{version}-venv" in error.next_command


def test_a_folder_that_cannot_be_read_has_no_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path, _pattern: str) -> list[Path]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "glob", refuse)
    assert pythons._found_in(tmp_path, "versions/*/bin/python") == []
    assert pythons._pyenv_pythons() == pythons._uv_pythons() == []
