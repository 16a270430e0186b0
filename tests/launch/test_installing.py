"""launch/installing.py and pip_failures.py: what can go wrong with pip, and in which words it is said."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.errors import RunError
from launch import environments
from launch.installing import explain

Tiny = Any  # the fixture of conftest.py


@pytest.mark.slow
@pytest.mark.usefixtures("quick_python")
def test_no_network_says_so_and_shows_no_login(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny.spec()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "http://somebody:s3cret@127.0.0.1:9/simple")
    with pytest.raises(RunError, match="package index cannot be reached") as caught:
        environments.ensure(spec, lambda _text: None, bar=False)
    message = str(caught.value)
    log = next(environments.environments_root().glob("*.log"))
    assert str(log) in message
    assert "pip download" in message
    assert "PIP_FIND_LINKS" in message
    assert "s3cret" not in message + log.read_text()
    assert not tiny.path(spec).exists()


@pytest.mark.slow
@pytest.mark.usefixtures("quick_python")
def test_other_content_than_locked_names_the_package(tiny: Tiny) -> None:
    spec = tiny.spec(digest="0" * 64)
    with pytest.raises(RunError, match=r"the package tiny==1\.0 is not the one the lock file was made with"):
        environments.ensure(spec, lambda _text: None, bar=False)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_python")
def test_package_that_the_index_lacks_is_named(tiny: Tiny) -> None:
    spec = tiny.spec("3.0")
    (tiny.place / "wheels" / "tiny-3.0-py3-none-any.whl").unlink()
    with pytest.raises(RunError, match=r"the package index has no tiny==3\.0"):
        environments.ensure(spec, lambda _text: None, bar=False)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_python")
def test_failing_import_check_leaves_no_environment(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny.spec()
    monkeypatch.setenv("TINY_TRACE", "/nowhere/trace")
    with pytest.raises(RunError, match="importing tiny failed") as caught:
        environments.ensure(spec, lambda _text: None, bar=False)
    assert "FileNotFoundError" in caught.value.why
    assert not tiny.path(spec).exists()


@pytest.mark.usefixtures("quick_python")
def test_what_has_no_wheel_is_built_by_the_setuptools_of_the_lock_file(tiny: Tiny) -> None:
    python = environments.ensure(tiny.spec_of_source(), lambda _text: None, bar=False)
    installed = {path.name for path in python.parents[1].glob("lib/*/site-packages/*.dist-info")}
    assert {"tiny-2.0.dist-info", "setuptools-999.0.dist-info"} <= installed


def explained(text: str) -> RunError:
    spec, lock_file = SimpleNamespace(name="tiny-env"), SimpleNamespace(path=Path("requirements.lock"))
    making = SimpleNamespace(spec=spec, lock_file=lock_file, version_text="3.12", log_file=Path("/e/log"))
    return explain(making, text.splitlines())


@pytest.mark.parametrize(
    ("log", "what"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk"),
        ("ERROR: HTTP error 401 while getting x\n401 Client Error: Unauthorized for url: u", "login"),
        ("ERROR: 403 Client Error: Forbidden for url: https://i/simple/tiny/", "login"),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(x)'\n"
            "ERROR: Could not find a version that satisfies the requirement a==1 (from versions: none)\n"
            "ERROR: No matching distribution found for a==1",
            "cannot be reached",
        ),
        (
            "WARNING: Retrying after connection broken by 'ReadTimeoutError(Read timed out.)': /simple/a/\n"
            "ERROR: Could not find a version that satisfies the requirement a==2 (from versions: 0.9, 1.0)\n"
            "ERROR: No matching distribution found for a==2",
            "has no a==2",
        ),
        ("ERROR: something never seen before", "pip failed"),
    ],
)
def test_pip_failures_in_plain_words(log: str, what: str) -> None:
    assert what in str(explained(log))
