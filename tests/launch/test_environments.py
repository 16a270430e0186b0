"""Backend environments made for real, from a lock file that pins one tiny package built here: no network."""

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.backend import EnvironmentSpec
from benchmarks.errors import RequestError, RunError
from launch import environments

REPOSITORY = Path(__file__).resolve().parents[2]
THIS_PYTHON = (sys.version_info[0], sys.version_info[1])
# What the tiny package does when it is imported: it leaves a trace, and lingers if it is told to.
TINY_CODE = """
import os, time
with open(os.environ["TINY_TRACE"], "a") as trace:
    trace.write(f"{os.getpid()}\\n")
time.sleep(float(os.environ.get("TINY_SECONDS", "0")))
"""


def write_wheel(folder: Path, version: str) -> str:
    """A wheel of the package `tiny`; returns its hash."""
    info = f"tiny-{version}.dist-info"
    files = {
        "tiny.py": TINY_CODE,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_record_hash(text)},{len(text)}\n" for name, text in files.items())
    wheel = folder / f"tiny-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in (files | {f"{info}/RECORD": record + f"{info}/RECORD,,\n"}).items():
            archive.writestr(name, text)
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def _record_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh STEPMARK_HOME, and a pip that sees nothing but the wheels in the folder `wheels`."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TINY_TRACE", str(tmp_path / "trace"))
    return tmp_path


def tiny_spec(place: Path, version: str = "1.0", digest: str | None = None) -> EnvironmentSpec:
    made = write_wheel(place / "wheels", version)
    lock = place / "requirements.lock"
    lock.write_text(
        "# a lock file\n"
        f"tiny=={version} \\\n    --hash=sha256:{digest or made}\n"
        f"elsewhere==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:{made}\n"
    )
    return EnvironmentSpec(
        name="tiny-env",
        lock_file=lock,
        python_minimum=THIS_PYTHON,
        python_maximum=THIS_PYTHON,
        import_check="tiny",
        size_gb=0.05,
    )


def imports(place: Path) -> list[int]:
    """The process ids of all who imported the tiny package: one for each import check."""
    trace = place / "trace"
    return [int(line) for line in trace.read_text().splitlines()] if trace.exists() else []


def start_ensure(place: Path, **environment: str) -> subprocess.Popen[str]:
    """`ensure` of the tiny lock file in a process of its own."""
    code = (
        "from pathlib import Path\n"
        "from benchmarks.backend import EnvironmentSpec\n"
        "from launch import environments\n"
        f"v = {THIS_PYTHON}\n"
        f"spec = EnvironmentSpec(name='tiny-env', lock_file=Path({str(place / 'requirements.lock')!r}),\n"
        "    python_minimum=v, python_maximum=v, import_check='tiny', size_gb=0.05)\n"
        "print(environments.ensure(spec))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    # A zombie that nobody has waited for yet is not alive.
    return not (status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z")


def no_python_but(monkeypatch: pytest.MonkeyPatch, place: Path, path: str) -> None:
    """Hide every Python of this machine that is not in `path`."""
    for name in ("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    (place / "empty_home").mkdir()
    (place / "os-release").write_text('ID=ubuntu\nVERSION_ID="24.04"\n')
    monkeypatch.setenv("HOME", str(place / "empty_home"))
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setattr(environments, "SYSTEM_PATTERNS", ())
    monkeypatch.setattr(environments, "OS_RELEASE", place / "os-release")


def write_program(path: Path, text: str, mode: int = 0o755) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)


# --- places -----------------------------------------------------------------------------------


def test_root_comes_from_stepmark_home_then_xdg_then_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setenv("STEPMARK_HOME", "/s")
    assert environments.environments_root() == Path("/s/environments")
    monkeypatch.delenv("STEPMARK_HOME")
    assert environments.environments_root() == Path("/x/stepmark/environments")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert environments.environments_root() == Path("/h/.cache/stepmark/environments")


def test_path_names_the_lock_the_python_and_the_machine(place: Path) -> None:
    spec = tiny_spec(place)
    digest = hashlib.sha256(spec.lock_file.read_bytes()).hexdigest()[:12]
    version = ".".join(map(str, THIS_PYTHON))
    expected = f"tiny-env-{digest}-py{version}-{os.uname().machine}"
    assert environments.environment_path(spec) == place / "home" / "environments" / expected


def test_missing_lock_file_is_a_clear_refusal(place: Path) -> None:
    spec = tiny_spec(place)
    spec.lock_file.unlink()
    with pytest.raises(RequestError, match="lock file of the environment 'tiny-env' cannot be read"):
        environments.is_ready(spec)


# --- making and reuse -------------------------------------------------------------------------


@pytest.mark.slow
def test_made_once_reused_at_once_and_made_again_when_not_whole(place: Path) -> None:
    spec = tiny_spec(place)
    said: list[str] = []
    assert not environments.is_ready(spec)
    python = environments.ensure(spec, said.append, bar=False)
    assert python == environments.python_of(spec)
    assert environments.environment_path(spec) == python.parents[1]
    assert len(imports(place)) == 1
    assert any("package 1 of 1" in line for line in said), said  # `elsewhere` is not for this system
    assert len(said) < 30
    marker = json.loads((python.parents[1] / environments.MARKER).read_text())
    assert marker["lock_sha256"] == hashlib.sha256(spec.lock_file.read_bytes()).hexdigest()

    started = time.perf_counter()
    assert environments.ensure(spec, said.append) == python
    assert time.perf_counter() - started < 0.01
    assert len(imports(place)) == 1

    (python.parents[1] / environments.MARKER).unlink()
    assert not environments.is_ready(spec)
    assert environments.ensure(spec, said.append, bar=False) == python
    assert any("left incomplete" in line for line in said)
    assert len(imports(place)) == 2


@pytest.mark.slow
def test_changed_lock_file_makes_a_new_environment_beside_the_old(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Settings that some machines and container images have, and that must not reach this pip.
    (place / "constraint.txt").write_text("tiny==0.1\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(place / "constraint.txt"))
    monkeypatch.setenv("PIP_TARGET", str(place / "elsewhere"))
    monkeypatch.setenv("PIP_USER", "1")
    old = environments.ensure(tiny_spec(place, "1.0"), bar=True)
    new = environments.ensure(tiny_spec(place, "2.0"), bar=False)
    assert old != new
    assert old.exists()
    assert list(new.parents[1].glob("lib/*/site-packages/tiny-2.0.dist-info"))


@pytest.mark.slow
def test_two_processes_at_the_same_time_make_it_once(place: Path) -> None:
    tiny_spec(place)
    both = [start_ensure(place, TINY_SECONDS="1") for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    assert len(imports(place)) == 1
    errors = outputs[0][1] + outputs[1][1]
    assert "is making it; waiting" in errors
    assert "made by the other process, reused" in errors


@pytest.mark.slow
def test_killed_in_the_middle_is_never_whole_and_is_made_again(place: Path) -> None:
    spec = tiny_spec(place)
    process = start_ensure(place, TINY_SECONDS="3")
    wait_until(lambda: len(imports(place)) == 1)
    process.kill()
    process.communicate()
    orphan = imports(place)[0]
    assert is_alive(orphan)
    assert not environments.is_ready(spec)
    said: list[str] = []
    environments.ensure(spec, said.append, bar=False)
    # The program that outlived its maker could still write: it was waited for.
    assert not is_alive(orphan)
    assert any(f"process {process.pid} is making it; waiting" in line for line in said)
    assert any("left incomplete" in line for line in said)
    assert environments.is_ready(spec)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_the_programs_and_leaves_no_environment(place: Path, number: signal.Signals) -> None:
    spec = tiny_spec(place)
    process = start_ensure(place, TINY_SECONDS="60")
    wait_until(lambda: len(imports(place)) == 1)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode != 0
    assert not is_alive(imports(place)[0])
    assert not environments.environment_path(spec).exists()


# --- what can go wrong ------------------------------------------------------------------------


@pytest.mark.slow
def test_no_network_says_so_and_shows_no_login(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny_spec(place)
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
    assert not environments.environment_path(spec).exists()


@pytest.mark.slow
def test_other_content_than_locked_names_the_package(place: Path) -> None:
    spec = tiny_spec(place, digest="0" * 64)
    with pytest.raises(RunError, match=r"the package tiny==1\.0 is not the one the lock file was made with"):
        environments.ensure(spec, lambda _text: None, bar=False)


@pytest.mark.slow
def test_package_that_the_index_lacks_is_named(place: Path) -> None:
    spec = tiny_spec(place, "3.0")
    (place / "wheels" / "tiny-3.0-py3-none-any.whl").unlink()
    with pytest.raises(RunError, match=r"the package index has no tiny==3\.0"):
        environments.ensure(spec, lambda _text: None, bar=False)


@pytest.mark.slow
def test_failing_import_check_leaves_no_environment(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny_spec(place)
    monkeypatch.setenv("TINY_TRACE", "/nowhere/trace")
    with pytest.raises(RunError, match="importing tiny failed") as caught:
        environments.ensure(spec, lambda _text: None, bar=False)
    assert "FileNotFoundError" in caught.value.why
    assert not environments.environment_path(spec).exists()


def explained(text: str) -> RunError:
    spec = SimpleNamespace(name="tiny-env", lock_file=Path("requirements.lock"))
    making = SimpleNamespace(spec=spec, path=Path("/e/tiny-env-0-py3.12-x86_64"), log_file=Path("/e/log"))
    return environments._explain_pip(making, text.splitlines())  # type: ignore[arg-type]


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


def test_logins_are_taken_out_of_urls() -> None:
    text = "Looking in indexes: https://u:p@ss@host/simple, https://open/simple/a@1"
    assert environments.scrub(text) == "Looking in indexes: https://***@host/simple, https://open/simple/a@1"


def test_root_that_cannot_be_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny_spec(place)
    (place / "file").write_text("not a folder")
    monkeypatch.setenv("STEPMARK_HOME", str(place / "file"))
    with pytest.raises(RequestError, match="cannot be written") as caught:
        environments.ensure(spec, lambda _text: None)
    assert "export STEPMARK_HOME=" in caught.value.next_command


def test_disk_too_full(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny_spec(place)
    monkeypatch.setattr(environments.shutil, "disk_usage", lambda _place: SimpleNamespace(free=20_000_000))
    with pytest.raises(RequestError, match="the disk has no room") as caught:
        environments.ensure(spec, lambda _text: None)
    assert caught.value.why == "it takes about 0.05 GB and 0.0 GB are free"


# --- Python search ----------------------------------------------------------------------------


def test_programs_that_are_no_good_do_not_stop_the_search(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny_spec(place)
    real = os.path.realpath(sys.executable)
    bad, good = place / "bad", place / "good"
    bad.mkdir()
    good.mkdir()
    name = f"python{THIS_PYTHON[0]}.{THIS_PYTHON[1]}"
    write_program(bad / name, "echo 'pyenv: command not found' >&2; exit 127")
    write_program(bad / "python3", "/bin/sleep 60; true")
    write_program(bad / "python", "no one may start this", mode=0o644)
    write_program(good / "python3", f'exec {real} "$@"')
    no_python_but(monkeypatch, place, f"{bad}:relative::{place / 'missing'}:{good}")
    monkeypatch.setattr(environments, "PROBE_SECONDS", 0.5)
    assert environments.find_python(spec) == good / "python3"


def test_oldest_fitting_python_is_preferred_and_newest_patch_of_pyenv(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_python_but(monkeypatch, place, str(place / "path"))
    monkeypatch.setenv("PYENV_ROOT", str(place / "pyenv"))
    (place / "path").mkdir()
    write_program(place / "path" / "python3", "echo 3.13 CPython 0")
    for version in ("3.9.18", "3.12.9", "3.12.10"):
        folder = place / "pyenv" / "versions" / version / "bin"
        folder.mkdir(parents=True)
        write_program(folder / "python", f"echo {version.rpartition('.')[0]} CPython 0")
    spec = EnvironmentSpec(
        name="x",
        lock_file=Path("x.lock"),
        python_minimum=(3, 12),
        python_maximum=(3, 13),
        import_check="x",
        size_gb=1,
    )
    assert environments.find_python(spec) == place / "pyenv/versions/3.12.10/bin/python"
    monkeypatch.delenv("PYENV_ROOT")
    assert environments.find_python(spec) == place / "path" / "python3"


def test_no_python_at_all_says_exactly_what_to_install(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_python_but(monkeypatch, place, "")
    spec = EnvironmentSpec(
        name="jax-maxtext",
        lock_file=Path("x/requirements.lock"),
        python_minimum=(3, 12),
        python_maximum=(3, 13),
        import_check="x",
        size_gb=1,
    )
    with pytest.raises(RequestError) as caught:
        environments.find_python(spec)
    assert caught.value.exit_code == 2
    assert str(caught.value) == (
        "no Python 3.12 to 3.13 was found to make the environment 'jax-maxtext' with\n"
        "  where: looked at PATH, pyenv, uv and the system's folders: no Python at all\n"
        "  why:   the packages in requirements.lock are pinned for Python 3.12 to 3.13\n"
        "  next:  apt-get install python3.12 python3.12-venv\n"
        "         or: uv python install 3.12\n"
        "         or: pyenv install 3.12"
    )


def test_every_program_looked_at_is_named_with_its_fault(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny_spec(place)
    folder = place / "path"
    folder.mkdir()
    version = ".".join(map(str, THIS_PYTHON))
    write_program(folder / f"python{version}", f"echo {version} CPython 0; exit 1")
    write_program(folder / "python3", "echo 2.7 CPython 0")
    write_program(folder / "python", f"echo {version} PyPy 0")
    no_python_but(monkeypatch, place, str(folder))
    with pytest.raises(RequestError) as caught:
        environments.find_python(spec)
    assert f"python{version} is Python {version} without venv and ensurepip" in caught.value.where
    assert "python3 is Python 2.7" in caught.value.where
    assert "python is PyPy, not CPython" in caught.value.where
    assert f"apt-get install python{version} python{version}-venv" in caught.value.next_command
