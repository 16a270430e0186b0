"""What can go wrong while uv makes an environment, and how the message names it."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.errors import RunError
from launch.environments import uv, venvs
from launch.environments.making import Making, install
from tests.launch.assets.file_server import FileServer, serving

Tiny = Any  # the fixture of conftest.py


def test_no_network_says_so_and_shows_no_login(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny.spec()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "http://somebody:s3cret@127.0.0.1:9/simple")
    with pytest.raises(RunError, match="uv failed") as caught:
        venvs.ensure(spec)
    message = str(caught.value)
    log = next(venvs.environments_root().glob("*.log"))
    assert str(log) in message
    assert "pip config list" in message
    assert "s3cret" not in message + log.read_text()
    assert not tiny.path(spec).exists()


def test_other_content_than_locked_names_the_package(tiny: Tiny) -> None:
    spec = tiny.spec(digest="0" * 64)
    with pytest.raises(RunError, match="uv failed") as caught:
        venvs.ensure(spec)
    assert "Hash mismatch for `tiny==1.0`" in caught.value.why


def test_package_that_the_index_lacks_is_named(tiny: Tiny) -> None:
    spec = tiny.spec("3.0")
    (tiny.place / "wheels" / "tiny-3.0-py3-none-any.whl").unlink()
    with pytest.raises(RunError, match="uv failed") as caught:
        venvs.ensure(spec)
    assert "tiny==3.0" in caught.value.why


def test_failing_import_check_leaves_no_environment(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny.spec()
    monkeypatch.setenv("TINY_TRACE", "/nowhere/trace")
    with pytest.raises(RunError, match="importing tiny failed") as caught:
        venvs.ensure(spec)
    assert "FileNotFoundError" in caught.value.why
    assert not tiny.path(spec).exists()


def test_what_has_no_wheel_is_built_by_the_setuptools_of_the_lock_file(tiny: Tiny) -> None:
    python = venvs.ensure(tiny.spec_of_source())
    installed = {path.name for path in python.parents[1].glob("lib/*/site-packages/*.dist-info")}
    assert {"tiny-2.0.dist-info", "setuptools-999.0.dist-info"} <= installed


# --- uv's messages of real failures, from a package index that fails on request --------------------------


@pytest.fixture(scope="module")
def index() -> Iterator[FileServer]:
    with serving() as server:
        yield server


@pytest.fixture
def making(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> Making:
    """Return an existing, empty environment."""
    spec = tiny.spec()
    place, base = tiny.place / "environment", Path(sys.executable)
    making = Making(spec, spec.locks[0], "", base, tiny.python_version, place, place / "complete", {}, lock=0)
    subprocess.run(uv.command("venv", "--quiet", "--python", sys.executable, str(making.path)), check=True)
    monkeypatch.setenv("UV_CACHE_DIR", str(tiny.place / "cache"))
    return making


@pytest.fixture
def failing(making: Making) -> Callable[..., RunError]:
    """Why the tiny package cannot be installed from an index."""

    def fail(url: str, **settings: str) -> RunError:
        pip = {"index-url": url, "retries": "0", "timeout": "1", **settings}
        with pytest.raises(RunError) as caught:
            install(replace(making, pip=pip), lambda *_args: None)
        return caught.value

    return fail


PROJECT = "/simple/tiny/"


@pytest.mark.parametrize("status", [401, 404])
def test_index_that_answers_otherwise(index: FileServer, failing: Callable[..., RunError], status: int) -> None:
    index.responses = {PROJECT: lambda handler: handler.answer(status)}
    error = failing(f"{index.url}/simple")
    assert "tiny==1.0" in error.why


def test_index_that_cannot_be_reached(index: FileServer, failing: Callable[..., RunError]) -> None:
    index.responses = {PROJECT: lambda _handler: time.sleep(1.5)}
    for url in (f"{index.url}/simple", "http://no-such-index.invalid/simple"):
        assert "/simple" in failing(url).why
    through_proxy = failing("http://index.invalid/simple", proxy="http://127.0.0.1:9")
    assert "Connection refused" in through_proxy.why
