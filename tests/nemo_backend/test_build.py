"""Settings as NeMo gets them: what the plan writes down, build.py reads back; and the list of what there is to set.

NeMo and torch are not installed here: fake modules stand in for the little that is asked of them.
"""

import enum
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.configs import Configs
from benchmarks.values import Benchmark
from launch.environments import venvs
from nemo_backend import BACKEND
from nemo_backend.inside import build
from nemo_backend.planning import MODEL_CLASS, nemo_settings, settings, worker_command

HERE = Path(build.__file__).parents[1]
RECIPES = [recipe for recipe in Configs().recipes() if (recipe.backend, recipe.engine) == ("nemo", "nemo")]
Resolve = Callable[..., Benchmark]
PutModules = Callable[[Mapping[str, Mapping[str, Any]]], None]


class Made:
    """An object of NeMo's: what it was made of."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        self.args = args
        self.fields = fields


def kind(name: str) -> Any:
    return type(name, (Made,), {})


class Dtype(enum.Enum):
    float32 = "float32"
    bfloat16 = "bfloat16"


class Anything:
    """A module that has every name."""

    def __getattr__(self, name: str) -> str:
        return f"the buffers {name}"


@pytest.fixture
def torch(put_modules: PutModules) -> None:
    put_modules({"torch": {"float32": Dtype.float32, "bfloat16": Dtype.bfloat16, "dtype": Dtype}})


# --- a setting's text -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("val_check_interval", "none", None),
        ("params_dtype", "none", None),
        ("logger", "false", False),
        ("sequence_parallel", "true", True),
        ("max_steps", "50", 50),
        ("devices", "-1", -1),
        ("lr", "0.0003", 0.0003),
        ("adam_eps", "1e-05", 1e-05),
        ("lr", "2e-4", 2e-4),
        ("precision", "bf16-mixed", "bf16-mixed"),
        ("default_root_dir", "/a b/{c}", "/a b/{c}"),
        ("fp8_recipe", "delayed", "delayed"),
        ("optimizer", "", ""),
        ("target_modules", "linear_qkv", ["linear_qkv"]),
        ("target_modules", "linear_qkv,linear_fc1", ["linear_qkv", "linear_fc1"]),
    ],
)
def test_a_text_as_nemo_wants_it(name: str, text: str, value: object) -> None:
    found = build.value_of(name, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("name", ["params_dtype", "pipeline_dtype", "dtype", "lora_dtype"])
def test_a_dtype_is_torchs_own(name: str) -> None:
    assert build.value_of(name, "bfloat16") is Dtype.bfloat16
    with pytest.raises(AttributeError, match="bfloat61"):
        build.value_of(name, "bfloat61")


def test_the_buffers_of_the_overlap_are_nemos_own_by_their_name(put_modules: PutModules) -> None:
    put_modules({build.OVERLAP_CONFIGS: {"userbuffers_x": "the buffers"}})
    assert build.value_of("tp_comm_overlap_cfg", "userbuffers_x") == "the buffers"


def test_the_longest_group_takes_a_setting() -> None:
    found = build.grouped(
        [
            "trainer.max_steps=3",
            "trainer.strategy.sequence_parallel=true",
            "trainer.strategy.ddp.overlap_grad_reduce=false",
            "model.config_class=Llama3Config",
            "model.config.num_layers=2",
            "data.dataset_kwargs=a=b",
        ]
    )
    assert found["trainer"] == {"max_steps": 3}
    assert found["trainer.strategy"] == {"sequence_parallel": True}
    assert found["trainer.strategy.ddp"] == {"overlap_grad_reduce": False}
    assert found["model.config"] == {"num_layers": 2}
    assert found[MODEL_CLASS] == "Llama3Config"
    assert found["data"] == {"dataset_kwargs": "a=b"}
    assert found.keys() == {*build.GROUPS, MODEL_CLASS}
    assert found["peft"] == {}


def inside_nemo(name: str, value: object) -> object:
    """What a setting of the plan has become."""
    if value == "none":
        return None
    if name.endswith("dtype"):
        return Dtype(value)
    if name == "peft.target_modules":
        return str(value).split(",")
    if name == "comm_overlap.tp_comm_overlap_cfg":
        return f"the buffers {value}"
    return 32 if (name, value) == ("trainer.plugins.precision", "32") else value  # NeMo takes either


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("recipe", "dtype"),
    [
        pytest.param(row, dtype, id=f"{row.name}-{dtype}")
        for row in RECIPES
        for dtype in next(iter(row.dtypes.values()))
    ],
)
def test_what_a_plan_writes_down_is_what_nemo_gets(
    resolved: Resolve, monkeypatch: pytest.MonkeyPatch, recipe: Any, dtype: str
) -> None:
    monkeypatch.setattr(build.importlib, "import_module", lambda _path: Anything())
    wanted = {"task": recipe.task, "hardware": recipe.defaults.hardware, "recipe": recipe.name}
    benchmark = resolved(recipe.models[0], dtype=dtype, **wanted)
    command = worker_command(benchmark)
    found = build.grouped(command[command.index("--") + 1 :])
    flat = {f"{group}.{name}": value for group in build.GROUPS for name, value in found[group].items()}
    stated = nemo_settings(benchmark)
    assert found[MODEL_CLASS] == stated.pop(MODEL_CLASS)
    expected = {name: inside_nemo(name, value) for name, value in stated.items()}
    assert flat == expected
    assert {name: type(value) for name, value in flat.items()} == {
        name: type(value) for name, value in expected.items()
    }


# --- NeMo's objects -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("knows", "named"), [(True, {"cuda_graph_impl": "local"}), (False, {"enable_cuda_graph": True})]
)
def test_a_cuda_graph_has_the_name_that_megatron_knows(knows: bool, named: dict[str, object]) -> None:
    kind = type("Config", (), {"cuda_graph_impl": "none"} if knows else {})
    settings = build.grouped(["model.config.enable_cuda_graph=true", "model.config.num_layers=2"])
    assert build.config_fields(settings, kind) == {"num_layers": 2, **named}
    assert build.config_fields(build.grouped(["model.config.enable_cuda_graph=false"]), kind) == {
        "enable_cuda_graph": False
    }


# --- the list of what there is to set -------------------------------------------------------------------


def test_every_listed_setting_has_a_group_and_every_group_settings() -> None:
    in_group = dict.fromkeys(build.GROUPS, 0)
    for name in settings().keys() - {MODEL_CLASS}:
        fitting = [group for group in build.GROUPS if name.startswith(f"{group}.")]
        assert fitting, name
        in_group[max(fitting, key=len)] += 1
    assert all(in_group.values()), in_group


def test_the_list_holds_words_of_types_and_the_versions_that_the_locks_pin() -> None:
    assert set(settings().values()) == {"bool", "int", "float", "str", "list"}
    head = (HERE / "nemo_settings.yml").read_text().splitlines()[0]
    for lock in ("requirements-cpu.lock", "requirements-cuda.lock"):
        pins = dict(re.findall(r"(?m)^([\w-]+)==(\S+)", (HERE / lock).read_text()))
        assert f"NeMo {pins['nemo-toolkit']} and Megatron-core {pins['megatron-core']} " in head


@pytest.mark.slow
def test_the_list_is_what_the_installed_nemo_says() -> None:
    python = venvs.ensure(BACKEND.environment("nemo"), bar=False)
    program = HERE / "inside" / "list_settings.py"
    done = subprocess.run([str(python), "-P", str(program)], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == (HERE / "nemo_settings.yml").read_text()
