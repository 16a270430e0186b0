"""What is written about a run's origin, and that no secret is."""

import hashlib
import json
from pathlib import Path

import pytest

from benchmarks.configs import Configs
from benchmarks.request.resolve import Request, resolve
from jax_backend import BACKEND
from launch.environments import venvs
from launch.machine import processes
from launch.running import execute

(JAX_LOCK,) = BACKEND.environment("maxtext").locks
LOCK_SHA256 = hashlib.sha256(JAX_LOCK.path.read_bytes()).hexdigest()


def collected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **variables: str) -> str:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    benchmark = resolve(Request(backend="jax", model="llama2_tiny"), Configs(), BACKEND)
    plan = BACKEND.plan(benchmark)
    python = tmp_path / "environment" / "bin" / "python"
    places = {"perf": processes.places(str(python), tmp_path)}
    (tmp_path / "environment").mkdir(exist_ok=True)
    (tmp_path / "environment" / venvs.MARKER).write_text(json.dumps({"lock_sha256": LOCK_SHA256}))
    environment = venvs.origin(BACKEND.environment("maxtext"), python)
    about = execute.collect_provenance(plan, environment, ["run.py", "--model=llama2_tiny"], [], places)
    return json.dumps(about)


@pytest.mark.parametrize("name", ["HF_TOKEN", "STEPMARK_AUTH"])
def test_secrets_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    text = collected(monkeypatch, tmp_path, **{name: "very-hidden"})
    assert "very-hidden" not in text
    assert f'"{name}": "<redacted>"' in text


def test_what_matters_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    about = json.loads(collected(monkeypatch, tmp_path, NCCL_DEBUG="INFO"))
    assert about["shell"]["NCCL_DEBUG"] == "INFO"
    assert about["phases"]["perf"]["argv"][0] == str(tmp_path / "environment" / "bin" / "python")
    assert about["environment"] == {
        "name": "jax-maxtext",
        "lock_file": "requirements.lock",
        "lock_sha256": LOCK_SHA256,
    }
    assert about["phases"]["perf"]["xla_flags"] == ["--xla_force_host_platform_device_count=1"]
    assert about["machine"]["memory_bytes"] > 0
    assert about["launcher"]["msgspec"] != "not installed"


def test_ineffective_variables_of_the_shell_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_something")
    assert any("XLA_FLAGS" in note for note in execute.ignored_variables())


def test_a_secret_of_the_shell_is_hidden_in_other_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = collected(monkeypatch, tmp_path, MY_PASSWORD="correct-horse", NCCL_NOTE="it is correct-horse")
    assert '"NCCL_NOTE": "it is <redacted>"' in text
