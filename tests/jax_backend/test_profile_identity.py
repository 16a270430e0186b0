"""What must be the same between the program that was profiled and the one that uses the profile."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from jax_backend.inside.profile_identity import check, differences, identity
from tests.jax_backend.asked import each

SETTINGS = ["base_emb_dim=64", "remat_policy=minimal", "steps=15", "run_name=stepmark", "profiler=nsys"]
VERSIONS = {"python": "3.12.1", "jax": "0.12.0.1", "jaxlib": "0.12.0.1", "maxtext": "0.2.5", "numpy": "2.5.5"}
FLAGS = "--xla_gpu_enable_triton_gemm=false --xla_gpu_enable_latency_hiding_scheduler=false --xla_dump_to=/a"


def made(**changed: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "argv": SETTINGS,
        "versions": VERSIONS,
        "mesh": {"fsdp": 8},
        "device_kind": "NVIDIA H100 80GB HBM3",
        "devices": 64,
        "xla_flags": FLAGS,
    }
    return identity(**(values | changed))


def test_the_phases_of_one_run_are_the_same_program() -> None:
    """What differs between them differs on purpose."""
    settings = [
        "base_emb_dim=64", "remat_policy=minimal", "steps=50", "run_name=other", "log_period=1", "profiler=",
        "profiler_steps=3", "skip_first_n_steps_for_profiler=9", "upload_all_profiler_results=true",
        "base_output_directory=/b", "jax_cache_dir=/c",
    ]  # fmt: skip
    flags = (
        "--xla_gpu_enable_triton_gemm=false --xla_gpu_enable_latency_hiding_scheduler=true --xla_dump_hlo_as_text "
        "--xla_gpu_pgle_profile_file_or_directory_path=/x/profile.pbtxt --xla_gpu_disable_async_collectives=ALLREDUCE"
    )
    now = made(argv=settings, xla_flags=flags, versions={**VERSIONS, "python": "3.13.0", "numpy": "2.6"})
    assert differences(made(), now) == []


@each("differences_of_programs", "changed", "words")
def test_each_difference_is_described(profile: Path, changed: dict[str, Any], words: str) -> None:
    assert any(line.startswith(words) for line in differences(made(), made(**changed)))
    assert differences(made(**changed), made(**changed)) == []
    reason = check(profile, made(**changed)) or ""
    assert reason.startswith("the profile cannot be used: it belongs to a different program: ")
    assert words in reason


# --- the profile to use ---------------------------------------------------------------------------


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    text = 'costs { name: "fusion.1" cost_us: 1.0 }\n'
    (tmp_path / "profile.pbtxt").write_text(text)
    reason = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "made_by": made()}
    (tmp_path / "profile.json").write_text(json.dumps(reason))
    return tmp_path / "profile.json"


def test_a_profile_of_this_program_is_taken_and_no_other(profile: Path) -> None:
    assert check(str(profile), made()) is None
    costs = profile.with_name("profile.pbtxt")
    costs.write_text('costs { name: "fusion.1" cost_us: 2.0 }\n')
    assert "does not belong to" in (check(profile, made()) or "")
    costs.unlink()
    assert "No such file" in (check(profile, made()) or "")


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", '{"made_by": 3, "sha256": ""}', "\udcff"])
def test_a_profile_json_that_says_nothing_is_refused(profile: Path, text: str) -> None:
    profile.write_text(text, errors="surrogateescape")
    assert "cannot be used" in (check(profile, made()) or "")
