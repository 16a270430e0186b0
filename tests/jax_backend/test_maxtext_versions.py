"""The worker finds all that it takes hold of in each MaxText that it works with, and says what an older one lacks.

Images hold other releases than the pinned one. Here the wheels of two go before it on the path.
"""

import os
import subprocess
from pathlib import Path

import pytest

from jax_backend import BACKEND
from launch.environments import uv, venvs

WORKER = Path(__file__).resolve().parents[2] / "jax_backend" / "inside" / "worker.py"
SETTINGS = ["profiler=nsys", "attention=dot_product"]
LOOK = f"""
import importlib.util, pathlib, sys
def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
worker = load(pathlib.Path({str(WORKER)!r}))
check = load(pathlib.Path({str(WORKER.with_name("environment_check.py"))!r}))
try:
    check.import_hooks(check.hooks({dict(word.split("=") for word in SETTINGS)!r}, "lora"), worker.kit)
except worker.kit.CheckFailure as failure:
    sys.exit(f"lacking: {{failure}}; try: {{failure.next_step}}")
import maxtext
print("all in", maxtext.__file__)
"""

pytestmark = pytest.mark.slow


def looked_at(release: str, tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    wheel = tmp_path / release
    python = venvs.ensure(BACKEND.environment("maxtext"))
    pip = uv.pip_settings()
    install = uv.command("pip", "install", "--quiet", "--no-deps", f"--python={python}", f"--target={wheel}")
    subprocess.run([*install, f"maxtext=={release}"], env=uv.variables(pip), check=True, timeout=300)
    variables = {"PYTHONPATH": str(wheel), "JAX_PLATFORMS": "cpu", "DECOUPLE_GCLOUD": "TRUE", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [str(python), "-P", "-c", LOOK], env={**os.environ, **variables}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip


def test_0_2_4_has_all_that_the_worker_takes_hold_of(tmp_path: Path) -> None:
    done = looked_at("0.2.4", tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"all in {tmp_path}/0.2.4/maxtext/__init__.py" in done.stdout


def test_0_2_3_is_refused_in_one_line_with_the_way_out(tmp_path: Path) -> None:
    """It has no training_loop_iteration, and needs a TensorFlow before that is seen."""
    done = looked_at("0.2.3", tmp_path)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("lacking: maxtext.trainers.pre_train.train ")
    assert last.endswith("; try: pass --image with MaxText 0.2.4 or later")


def test_the_list_of_settings_is_what_the_pinned_maxtext_says() -> None:
    program = WORKER.with_name("list_settings.py")
    variables = {**os.environ, "JAX_PLATFORMS": "cpu", "DECOUPLE_GCLOUD": "TRUE"}
    python = venvs.ensure(BACKEND.environment("maxtext"))
    done = subprocess.run(
        [str(python), "-P", str(program)], env=variables, capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout == WORKER.parents[1].joinpath("maxtext_settings.yml").read_text()
