"""uv with the settings of pip, and the search for a Python that fits, among programs that do not."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launch.environments import uv
from launch.environments.uv import pip_settings, variables

Tiny = Any  # the fixture of conftest.py
Hide = Callable[[str], None]
REAL = os.path.realpath(sys.executable)
THIS_PYTHON = f'exec {REAL} "$@"'

PIP_CONF = """
[global]
index-url = https://mirror.example/simple
extra-index-url =
    https://more.example/simple
    file:///not/there/simple
trusted-host = mirror.example
find-links = /other
timeout = 5
[install]
timeout = 7
find-links =
    FOLDER
    https://wheels.example/all.html
[download]
timeout = 9
"""


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip.conf names."""
    for name in ("PIP_FIND_LINKS", "PIP_DEFAULT_TIMEOUT", "PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (tmp_path / "pip.conf").write_text(PIP_CONF.replace("FOLDER", str(wheels)))
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    return wheels


def test_settings_of_pip_hold_for_uv(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("PIP_CERT", "")  # empty: no effect
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    found = variables(pip_settings())
    assert found["UV_DEFAULT_INDEX"] == "https://mirror.example/simple"
    assert found["UV_INDEX"] == "https://more.example/simple file:///not/there/simple"
    assert found["UV_INSECURE_HOST"] == "mirror.example"
    assert found["UV_FIND_LINKS"] == f"{wheels},https://wheels.example/all.html"
    assert found["UV_HTTP_TIMEOUT"] == "7"
    assert found["ALL_PROXY"] == "http://proxy.example:3128"
    assert found["UV_PYTHON_DOWNLOADS"] == "never"
    assert found["UV_INDEX_STRATEGY"] == "unsafe-best-match"


def test_variables_of_pip_win_over_its_files_and_uvs_over_all(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://other.example/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", wheels.as_uri())
    monkeypatch.setenv("UV_INDEX", "https://mine.example/simple")
    monkeypatch.setenv("UV_TORCH_BACKEND", "cu130")  # contradicts a lock file
    found = variables(pip_settings())
    assert found["UV_DEFAULT_INDEX"] == "https://other.example/simple"
    assert found["UV_FIND_LINKS"] == wheels.as_uri()
    assert found["UV_INDEX"] == "https://mine.example/simple"
    assert "UV_TORCH_BACKEND" not in found


# --- Pythons ----------------------------------------------------------------------------------


def write_program(path: Path, text: str, mode: int = 0o755) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)


def test_programs_that_are_no_good_do_not_stop_the_search(tiny: Tiny, no_python_but: Hide) -> None:
    bad, good = tiny.place / "bad", tiny.place / "good"
    name = f"python{tiny.python_version[0]}.{tiny.python_version[1]}"
    write_program(bad / name, "echo 'pyenv: command not found' >&2; exit 127")
    write_program(bad / "python3", "echo no JSON")
    write_program(bad / "python", "no one may start this", mode=0o644)
    write_program(good / "python3", THIS_PYTHON)
    no_python_but(f"{bad}:relative::{tiny.place / 'missing'}:{good}")
    assert uv.find_pythons([tiny.python_version]) == {tiny.python_version: Path(REAL)}


def test_pyenv_is_looked_at_where_it_is(tiny: Tiny, no_python_but: Hide, monkeypatch: pytest.MonkeyPatch) -> None:
    no_python_but("")
    write_program(tiny.place / "pyenv" / "versions" / "3.12.9" / "bin" / "python", THIS_PYTHON)
    assert uv.find_pythons([tiny.python_version]) == {}
    monkeypatch.setenv("PYENV_ROOT", str(tiny.place / "pyenv"))
    assert uv.find_pythons([tiny.python_version]) == {tiny.python_version: Path(REAL)}


def test_a_uv_toml_of_the_working_folder_is_not_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uv.toml").write_text(f'cache-dir = "{tmp_path / "cache"}"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UV_CACHE_DIR", raising=False)
    assert uv.find_pythons([(sys.version_info.major, sys.version_info.minor)])
    assert not (tmp_path / "cache").exists()
