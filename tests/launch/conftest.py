"""A backend environment made for real, from a lock file that pins one tiny package built here: no network."""

import base64
import hashlib
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.backend import EnvironmentSpec, LockFile
from launch.environments import venvs

REPOSITORY = Path(__file__).resolve().parents[2]
# On import, the tiny package leaves a trace, and lingers on request.
TINY_CODE = """
import os, time
with open(os.environ["TINY_TRACE"], "a") as trace:
    trace.write(f"{os.getpid()}\\n")
time.sleep(float(os.environ.get("TINY_SECONDS", "0")))
"""


BUILDER_CODE = """
import pathlib, shutil
def build_wheel(folder, config_settings=None, metadata_directory=None):
    return pathlib.Path(shutil.copy({!r}, folder)).name
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
            locks=(LockFile(self.lock_file, self.python_version, self.python_version, size_gb=0.05),),
            import_check="tiny",
        )

    def prefer(self, spec: EnvironmentSpec, **changes: Any) -> EnvironmentSpec:
        """The environment with another lock file, preferred to the one it has; `changes` are its fields."""
        (old,) = spec.locks
        path = self.place / "preferred.lock"
        path.write_text("# the same, preferred\n" + old.path.read_text())
        preferred = msgspec.structs.replace(old, path=path, **{"size_gb": 0.01, **changes})
        return msgspec.structs.replace(spec, locks=(preferred, old))

    def path(self, spec: EnvironmentSpec) -> Path:
        """Where the environment would be."""
        return venvs.environment_path(spec, spec.locks[0], self.python_version)

    def spec_of_source(self) -> EnvironmentSpec:
        """The tiny package as source, and a setuptools that does not build, but hands out a wheel made here."""
        wheel = self.wheels / "tiny-2.0-py3-none-any.whl"
        self._write_wheel("2.0")
        hidden = wheel.rename(self.place / wheel.name)
        code = BUILDER_CODE.format(str(hidden))
        builder = self._write_wheel("999.0", "setuptools", "setuptools/build_meta.py", code)
        source = self.wheels / "tiny-2.0.tar.gz"
        (self.place / "pyproject.toml").write_text(
            '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        )
        with tarfile.open(source, "w:gz") as archive:
            archive.add(self.place / "pyproject.toml", "tiny-2.0/pyproject.toml")
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        spec = self.spec()
        self.lock_file.write_text(
            "--no-binary tiny\n"
            f"setuptools==999.0 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{builder}\n    # via nothing\n"
            f"tiny==2.0 \\\n    --hash=sha256:{digest}\n"
        )
        return spec

    def imports(self) -> list[int]:
        """The process ids of all who imported the tiny package: one for each import check."""
        trace = self.place / "trace"
        return [int(line) for line in trace.read_text().splitlines()] if trace.exists() else []

    def start_ensure(self, **environment: str) -> subprocess.Popen[str]:
        """Start `ensure` of the tiny lock file in a separate process."""
        code = (
            "from pathlib import Path\n"
            "from benchmarks.backend import EnvironmentSpec, LockFile\n"
            "from launch.environments import venvs\n"
            f"v = {self.python_version}\n"
            f"lock = LockFile(Path({str(self.lock_file)!r}), v, v, size_gb=0.05)\n"
            "print(venvs.ensure(EnvironmentSpec('tiny-env', (lock,), import_check='tiny')))\n"
        )
        return subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_import(self, seconds: float = 240) -> int:
        """The process id of the first import check, as soon as it runs."""
        end = time.monotonic() + seconds
        while not self.imports():
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.05)
        return self.imports()[0]

    def _write_wheel(self, version: str, name: str = "tiny", module: str = "tiny.py", code: str = TINY_CODE) -> str:
        """A wheel; returns its hash."""
        info = f"{name}-{version}.dist-info"
        files = {
            module: code,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{path},sha256={_record_hash(text)},{len(text)}\n" for path, text in files.items())
        wheel = self.wheels / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, text in (files | {f"{info}/RECORD": record + f"{info}/RECORD,,\n"}).items():
                archive.writestr(path, text)
        return hashlib.sha256(wheel.read_bytes()).hexdigest()


def _record_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """A fresh STEPMARK_HOME, and settings of pip that offer nothing but the wheels in the folder `wheels`."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TINY_TRACE", str(tmp_path / "trace"))
    return Tiny(tmp_path)


@pytest.fixture
def no_python_but(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Hides every Python of this machine that is not in the PATH it is called with."""

    def hide(path: str) -> None:
        for name in ("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR", "XDG_DATA_HOME"):
            monkeypatch.delenv(name, raising=False)
        (tmp_path / "empty_home").mkdir()
        monkeypatch.setenv("HOME", str(tmp_path / "empty_home"))
        monkeypatch.setenv("PATH", path)
        monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "none"))

    return hide
