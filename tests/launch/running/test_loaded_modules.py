"""The modules that commands load: only the core for a run, and few besides the libraries for quick commands.

How long they take is measured by tests/measure_start_up.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.measure_start_up import CLUSTER
from tests.toy_backend import install, make_environment_in

REPOSITORY = Path(__file__).resolve().parents[3]
OURS = ("benchmarks", "launch", "toy_backend", "jax_backend", "nemo_backend")
PROBE = """
import json, runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps({name: hasattr(module, "__path__") for name, module in sys.modules.items()}))
"""
# Each takes as long to import as many of Stepmark's modules.
SLOW = {"absl.app", "importlib.metadata", "jinja2", "numpy", "pynvml", "rich", "scipy", "tensorboard"}


def loaded(*flags: str, **variables: str) -> dict[str, bool]:
    """Every module -> whether it is a package."""
    path = [variables.pop("PYTHONPATH", ""), str(REPOSITORY), str(REPOSITORY / "launch")]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(REPOSITORY / "launch" / "run.py"), *flags],
        env={**os.environ, **variables, "PYTHONPATH": ":".join(filter(None, path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, bool] = json.loads(done.stdout.splitlines()[-1])
    return found


def own_modules(modules: dict[str, bool]) -> list[str]:
    """Without the __init__ of packages."""
    return sorted(name for name, package in modules.items() if not package and name.split(".")[0] in OURS)


def test_a_plain_local_run_loads_the_core_alone(tmp_path: Path) -> None:
    variables = install(tmp_path)
    make_environment_in(tmp_path)
    flags = ["--backend=toy", "--model=llama2_tiny", "--steps=4", f"--output_dir={tmp_path / 'results'}"]
    modules = own_modules(loaded(*flags, **variables))
    foreign = ("benchmarks.mlperf.", "launch.mlperf.", "launch.dashboards.", "jax_backend", "nemo_backend")
    assert [name for name in modules if name.startswith(foreign)] == []
    assert len(modules) <= 52, " ".join(modules)


@pytest.mark.parametrize(("flags", "most"), [(["--list"], 50), ([*CLUSTER.split(), "--dry_run"], 50)])
def test_the_quick_commands_load_little(flags: list[str], most: int) -> None:
    modules = loaded(*flags)
    assert modules.keys() & SLOW == set()
    assert len(own_modules(modules)) <= most, own_modules(modules)


def test_help_loads_the_flags_alone() -> None:
    modules = loaded("--help")
    assert modules.keys() & {*SLOW, "msgspec", "yaml"} == set()
    assert len(own_modules(modules)) <= 10, own_modules(modules)
