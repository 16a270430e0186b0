"""A backend environment made for real, from a lock file that pins one tiny package built here: no network."""

import base64
import hashlib
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.backend import EnvironmentSpec
from launch import pythons

REPOSITORY = Path(__file__).resolve().parents[2]
# What the tiny package does when it is imported: it leaves a trace, and lingers if it is told to.
TINY_CODE = """
import os, time
with open(os.environ["TINY_TRACE"], "a") as trace:
    trace.write(f"{os.getpid()}\\n")
time.sleep(float(os.environ.get("TINY_SECONDS", "0")))
"""


class Tiny:
    """The environment of the tiny package: its wheel, its lock file, and what was seen of it."""

    python_version = (sys.version_info[0], sys.version_info[1])

    def __init__(self, place: Path) -> None:
        self.place = place
        self.wheels = place / "wheels"
        self.lock_file = place / "requirements.lock"

    def spec(self, version: str = "1.0", digest: str | None = None) -> EnvironmentSpec:
        made = self._write_wheel(version)
        self.lock_file.write_text(
            "# a lock file\n"
            f"tiny=={version} \\\n    --hash=sha256:{digest or made}\n"
            f"elsewhere==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:{made}\n"
        )
        return EnvironmentSpec(
            name="tiny-env",
            lock_file=self.lock_file,
            python_minimum=self.python_version,
            python_maximum=self.python_version,
            import_check="tiny",
            size_gb=0.05,
        )

    def imports(self) -> list[int]:
        """The process ids of all who imported the tiny package: one for each import check."""
        trace = self.place / "trace"
        return [int(line) for line in trace.read_text().splitlines()] if trace.exists() else []

    def start_ensure(self, **environment: str) -> subprocess.Popen[str]:
        """`ensure` of the tiny lock file in a process of its own."""
        code = (
            "import sys\n"
            f"sys.executable = {sys.executable!r}\n"
            "from pathlib import Path\n"
            "from benchmarks.backend import EnvironmentSpec\n"
            "from launch import environments\n"
            f"v = {self.python_version}\n"
            f"spec = EnvironmentSpec(name='tiny-env', lock_file=Path({str(self.lock_file)!r}),\n"
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

    def wait_for_import(self, seconds: float = 60) -> int:
        """The process id of the first import check, as soon as it runs."""
        end = time.monotonic() + seconds
        while not self.imports():
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.05)
        return self.imports()[0]

    def _write_wheel(self, version: str) -> str:
        """A wheel of the package `tiny`; returns its hash."""
        info = f"tiny-{version}.dist-info"
        files = {
            "tiny.py": TINY_CODE,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{name},sha256={_record_hash(text)},{len(text)}\n" for name, text in files.items())
        wheel = self.wheels / f"tiny-{version}-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, text in (files | {f"{info}/RECORD": record + f"{info}/RECORD,,\n"}).items():
                archive.writestr(name, text)
        return hashlib.sha256(wheel.read_bytes()).hexdigest()


def _record_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """A fresh STEPMARK_HOME, and a pip that sees nothing but the wheels in the folder `wheels`."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TINY_TRACE", str(tmp_path / "trace"))
    return Tiny(tmp_path)


@pytest.fixture(scope="session")
def quick_python_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shim of this Python whose `-m venv` copies an environment made once, which is ten times as quick."""
    folder = tmp_path_factory.mktemp("quick_python")
    subprocess.run([sys.executable, "-I", "-m", "venv", folder / "made"], check=True)
    shim = folder / "python"
    shim.write_text(
        "#!/bin/sh\n"
        f'[ "$2 $3" = "-m venv" ] && exec cp -a "{folder}/made" "$4"\n'  # python -I -m venv FOLDER
        f'exec "{sys.executable}" "$@"\n'
    )
    shim.chmod(0o755)
    return shim


@pytest.fixture
def quick_python(quick_python_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first Python that is found is the quick one."""
    monkeypatch.setattr(sys, "executable", str(quick_python_path))


@pytest.fixture
def no_python_but(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Hides every Python of this machine that is not in the PATH it is called with."""

    def hide(path: str) -> None:
        for name in ("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR", "XDG_DATA_HOME"):
            monkeypatch.delenv(name, raising=False)
        (tmp_path / "empty_home").mkdir()
        (tmp_path / "os-release").write_text('ID=ubuntu\nVERSION_ID="24.04"\n')
        monkeypatch.setenv("HOME", str(tmp_path / "empty_home"))
        monkeypatch.setenv("PATH", path)
        monkeypatch.setattr(sys, "executable", "")
        monkeypatch.setattr(pythons, "SYSTEM_PATTERNS", ())
        monkeypatch.setattr(pythons, "OS_RELEASE", tmp_path / "os-release")

    return hide
