"""A third backend, installed for a test as another package would be: it naps, and fails on request."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.backend import Backend
from benchmarks.configs import DEFAULT_ROOT
from launch.environments import venvs

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]


def install(folder: Path) -> dict[str, str]:
    """Its package and configs in a folder; the variables with which a launch script finds them."""
    package, configs = folder / "site", folder / "configs"
    info = package / "toy_backend-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-backend\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[stepmark.backends]\ntoy = toy_backend:BACKEND\n")
    for name in ("toy_backend.py", "toy_worker.py", "toy.lock"):
        (package / name).write_bytes((HERE / name).read_bytes())
    configs.mkdir()
    for place in DEFAULT_ROOT.iterdir():
        if place.name != "recipes":
            (configs / place.name).symlink_to(place)
    (configs / "recipes").mkdir()
    for recipe in (DEFAULT_ROOT / "recipes").glob("*_tiny_*.yml"):
        (configs / "recipes" / recipe.name).symlink_to(recipe)
    (configs / "recipes" / "toy_tiny.yml").write_bytes((HERE / "toy_tiny.yml").read_bytes())
    return {
        "PYTHONPATH": str(package),
        "STEPMARK_CONFIGS": str(configs),
        "STEPMARK_HOME": str(folder / "home"),
    }


def make_environment(backend: Backend) -> None:
    """Its environment, as if it had been made: this very Python. STEPMARK_HOME says where."""
    spec = backend.environment(backend.engines[0])
    place = venvs.environment_path(spec, spec.locks[0], (sys.version_info[0], sys.version_info[1]))
    (place / "bin").mkdir(parents=True, exist_ok=True)
    (place / "bin/python").symlink_to(sys.executable)
    digest = hashlib.sha256(spec.locks[0].path.read_bytes()).hexdigest()
    (place / venvs.MARKER).write_text(json.dumps({"lock_sha256": digest}))


def make_environment_in(folder: Path) -> None:
    """The same, for a package that `install` put into this folder and that this process has not imported."""
    code = (
        "from benchmarks.backend import find_backend\n"
        "from tests.toy_backend import make_environment\n"
        "make_environment(find_backend('toy'))"
    )
    variables = {
        "STEPMARK_HOME": str(folder / "home"),
        "PYTHONPATH": f"{folder / 'site'}:{REPOSITORY}",
    }
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **variables}, check=True, timeout=60)
