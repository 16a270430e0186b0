"""Settings as NeMo gets them: what the plan writes down, build.py reads back; and the list of what there is to set.

NeMo and torch are not installed here: fake modules stand in for the little that is asked of them.
"""

import enum
import re
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from benchmarks.configs import Configs
from benchmarks.values import Benchmark
from launch.environments import venvs
from nemo_backend import BACKEND
from nemo_backend.inside import build
from nemo_backend.planning import MODEL_CLASS, settings
from tests.nemo_backend.conftest import HERE

RECIPES = [recipe for recipe in Configs().recipes() if (recipe.backend, recipe.engine) == ("nemo", "nemo")]
Resolve = Callable[..., Benchmark]
PutModules = Callable[[Mapping[str, Mapping[str, Any]]], None]


class Dtype(enum.Enum):
    float32 = "float32"
    bfloat16 = "bfloat16"


@pytest.fixture
def torch(put_modules: PutModules) -> None:
    put_modules({"torch": {"float32": Dtype.float32, "bfloat16": Dtype.bfloat16, "dtype": Dtype}})


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("val_check_interval", "none", None),
        ("params_dtype", "none", None),
        ("pipeline_dtype", "bfloat16", Dtype.bfloat16),
        ("sequence_parallel", "true", True),
        ("devices", "-1", -1),
        ("adam_eps", "1e-05", 1e-05),
        ("lr", "2e-4", 2e-4),
        ("precision", "bf16-mixed", "bf16-mixed"),
        ("default_root_dir", "/a b/{c}", "/a b/{c}"),
        ("optimizer", "", ""),
        ("target_modules", "linear_qkv", ["linear_qkv"]),
        ("target_modules", "linear_qkv,linear_fc1", ["linear_qkv", "linear_fc1"]),
    ],
)
def test_a_text_as_nemo_wants_it(name: str, text: str, value: object) -> None:
    found = build.value_of(name, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("knows", "named"), [(True, {"cuda_graph_impl": "local"}), (False, {"enable_cuda_graph": True})]
)
def test_a_cuda_graph_has_the_name_that_megatron_knows(knows: bool, named: dict[str, object]) -> None:
    kind = type("Config", (), {"cuda_graph_impl": "none"} if knows else {})
    found = build.grouped(["model.config.enable_cuda_graph=true", "model.config.num_layers=2"])
    assert build.config_fields(found, kind) == {"num_layers": 2, **named}
    off = build.grouped(["model.config.enable_cuda_graph=false"])
    assert build.config_fields(off, kind) == {"enable_cuda_graph": False}


# --- the list of what there is to set -------------------------------------------------------------------


def test_the_list_is_of_groups_and_types_that_are_known_and_of_the_versions_that_the_locks_pin() -> None:
    names = settings().keys() - {MODEL_CLASS}
    groups = {max((group for group in build.GROUPS if name.startswith(f"{group}.")), key=len) for name in names}
    assert groups == build.GROUPS.keys()
    assert set(settings().values()) == {"bool", "int", "float", "str", "list"}
    head = (HERE / "nemo_settings.yml").read_text().splitlines()[0]
    for lock in ("requirements-cpu.lock", "requirements-cuda.lock"):
        pins = dict(re.findall(r"(?m)^([\w-]+)==(\S+)", (HERE / lock).read_text()))
        assert f"NeMo {pins['nemo-toolkit']} and Megatron-core {pins['megatron-core']} " in head


@pytest.mark.slow
def test_the_list_is_what_the_installed_nemo_says() -> None:
    python = venvs.ensure(BACKEND.environment("nemo"))
    program = HERE / "inside" / "list_settings.py"
    done = subprocess.run([str(python), "-P", str(program)], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == (HERE / "nemo_settings.yml").read_text()
