"""Settings as NeMo gets them: what the plan writes down, build.py reads back; and the list of what there is to set.

NeMo and torch are not installed here: fake modules stand in for the little that is asked of them.
"""

import enum
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from benchmarks.configs import Configs
from benchmarks.values import Benchmark
from nemo_backend.inside import list_settings
from nemo_backend.planning import MODEL_CLASS, nemo_settings, settings, worker_command

HERE = Path(list_settings.__file__).parents[1]
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
def test_a_text_as_nemo_wants_it(build: Any, name: str, text: str, value: object) -> None:
    found = build.value_of(name, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("name", ["params_dtype", "pipeline_dtype", "dtype", "lora_dtype"])
def test_a_dtype_is_torchs_own(build: Any, name: str) -> None:
    assert build.value_of(name, "bfloat16") is Dtype.bfloat16
    with pytest.raises(AttributeError, match="bfloat61"):
        build.value_of(name, "bfloat61")


def test_the_buffers_of_the_overlap_are_nemos_own_by_their_name(build: Any, put_modules: PutModules) -> None:
    put_modules({build.OVERLAP_CONFIGS: {"userbuffers_x": "the buffers"}})
    assert build.value_of("tp_comm_overlap_cfg", "userbuffers_x") == "the buffers"


def test_the_longest_group_takes_a_setting(build: Any) -> None:
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
    build: Any, resolved: Resolve, monkeypatch: pytest.MonkeyPatch, recipe: Any, dtype: str
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


@pytest.fixture
def trainer_parts(put_modules: PutModules) -> None:
    put_modules(
        {
            "lightning.pytorch.plugins.environments": {"LightningEnvironment": kind("LightningEnvironment")},
            "nemo.lightning": {
                name: kind(name) for name in ("MegatronStrategy", "Trainer", "MegatronMixedPrecision")
            },
            "nemo.utils.exp_manager": {"TimingCallback": kind("TimingCallback")},
            "megatron.core.distributed": {"DistributedDataParallelConfig": kind("DistributedDataParallelConfig")},
            "nemo.lightning.pytorch.callbacks.garbage_collection": {
                "GarbageCollectionCallback": kind("GarbageCollectionCallback")
            },
        }
    )


@pytest.mark.usefixtures("trainer_parts")
def test_a_trainer_of_its_groups(build: Any) -> None:
    words = [
        "trainer.max_steps=3",
        "trainer.strategy.sequence_parallel=true",
        "trainer.strategy.ddp.overlap_grad_reduce=true",
        "trainer.plugins.precision=bf16-mixed",
        "garbage_collection.gc_interval_train=100",
    ]
    trainer = build.trainer_of(build.grouped(words), ["our clock"])
    fields = dict(trainer.fields)
    assert fields["max_steps"] == 3
    assert fields["strategy"].fields["sequence_parallel"] is True
    assert fields["strategy"].fields["ddp"].fields == {"overlap_grad_reduce": True}
    assert fields["plugins"].fields == {"precision": "bf16-mixed"}
    # The worker has joined the processes: no Slurm or torchrun is to be asked.
    assert type(fields["strategy"].fields["cluster_environment"]).__name__ == "LightningEnvironment"
    *nemos, ours = fields["callbacks"]
    assert [type(callback).__name__ for callback in nemos] == ["TimingCallback", "GarbageCollectionCallback"]
    assert ours == "our clock"  # after NeMo's own timer


@pytest.mark.parametrize(
    ("knows", "named"), [(True, {"cuda_graph_impl": "local"}), (False, {"enable_cuda_graph": True})]
)
def test_a_cuda_graph_has_the_name_that_megatron_knows(build: Any, knows: bool, named: dict[str, object]) -> None:
    kind = type("Config", (), {"cuda_graph_impl": "none"} if knows else {})
    settings = build.grouped(["model.config.enable_cuda_graph=true", "model.config.num_layers=2"])
    assert build.config_fields(settings, kind) == {"num_layers": 2, **named}
    assert build.config_fields(build.grouped(["model.config.enable_cuda_graph=false"]), kind) == {
        "enable_cuda_graph": False
    }


# --- data -----------------------------------------------------------------------------------------------


class MockGpt:
    """NeMo's made-up dataset: what a sample is depends on its number alone."""

    def __init__(self, tokenizer: str, name: str, samples: int, length: int, *, create_attention_mask: bool) -> None:
        self.made_of = (tokenizer, name, samples, length, create_attention_mask)

    def __getitem__(self, index: int) -> int:
        return index


class MockModule:
    num_train_samples, num_val_samples, num_test_samples = 100, 10, 5
    create_attention_mask = True

    def __init__(self, tokenizer: str, seq_length: int, **_: Any) -> None:
        self.tokenizer = tokenizer
        self.seq_length = seq_length


def test_made_up_data_is_one_global_batch_that_repeats(build: Any, put_modules: PutModules) -> None:
    put_modules(
        {
            "nemo.collections.llm": {"MockDataModule": MockModule},
            "nemo.collections.llm.gpt.data.mock": {"_MockGPTDataset": MockGpt},
        }
    )
    chosen = build.grouped(["data.seq_length=128", "data.global_batch_size=4", "data.micro_batch_size=2"])
    data = build.data_of(chosen, "mock", "lora", "a tokenizer")
    data.setup()
    assert [data._train_ds[index] for index in (0, 3, 4, 9)] == [0, 3, 0, 1]
    assert data._train_ds.made_of == ("a tokenizer", "train", 100, 128, True)
    assert data._validation_ds.made_of[1:3] == ("valid", 10)
    assert data._test_ds.made_of[1:3] == ("test", 5)


@pytest.mark.parametrize("has_te", [False, True])
def test_text_is_read_from_the_files_of_the_manifest(
    build: Any, put_modules: PutModules, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_te: bool
) -> None:
    put_modules({"nemo.collections.llm": {"PreTrainingDataModule": kind("PreTrainingDataModule")}})
    monkeypatch.setattr(build, "_has_transformer_engine", lambda: has_te)
    (tmp_path / "dataset.json").write_text(json.dumps({"prefixes": ["t_0", "t_1"]}))
    chosen = build.grouped(["trainer.default_root_dir=/run", "data.seq_length=128"])
    found = build.data_of(chosen, str(tmp_path), "pretrain", "a tokenizer").fields
    assert found == {
        "paths": [f"{tmp_path}/t_0", f"{tmp_path}/t_1"],
        "tokenizer": "a tokenizer",
        "split": "1,0,0",
        "index_mapping_dir": "/run",  # not beside the dataset, which may be another's
        "create_attention_mask": not has_te,
        "seq_length": 128,
    }


@pytest.mark.parametrize("has_te", [False, True])
def test_questions_and_answers_are_packed_where_transformer_engine_can(
    build: Any, put_modules: PutModules, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_te: bool
) -> None:
    put_modules(
        {
            "nemo.collections.common.tokenizers.huggingface.auto_tokenizer": {"AutoTokenizer": kind("AutoTokenizer")},
            "nemo.collections.llm.gpt.data": {"FineTuningDataModule": kind("FineTuningDataModule")},
            "nemo.collections.llm.gpt.data.packed_sequence": {"PackedSequenceSpecs": kind("PackedSequenceSpecs")},
        }
    )
    monkeypatch.setattr(build, "_has_transformer_engine", lambda: has_te)
    found = build.data_of(build.grouped(["data.seq_length=4096"]), str(tmp_path), "lora", "unused").fields
    assert found["dataset_root"] == tmp_path
    assert found["tokenizer"].args == (f"{tmp_path}/tokenizer",)
    assert found["seq_length"] == 4096
    packed = found["packed_sequence_specs"]
    assert (packed and packed.fields) == ({"packed_sequence_size": 4096} if has_te else None)


# --- the list of what there is to set -------------------------------------------------------------------


def test_every_listed_setting_has_a_group_and_every_group_settings(build: Any) -> None:
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


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("annotation", "word"),
    [
        (bool, "bool"),
        (int, "int"),
        (float, "float"),
        (str, "str"),
        (int | None, "int"),
        (int | float, "float"),
        (int | str, "str"),
        (bool | int, "int"),
        (Literal["a", None], "str"),
        (Literal[1, 2], "int"),
        (Dtype, "str"),
        (Dtype | None, "str"),
        (dict[str, int], None),
        (Callable[[], None], None),
        (Callable[[], None] | bool, "bool"),
        (None, None),
    ],
)
def test_the_word_for_an_annotation(annotation: object, word: str | None) -> None:
    assert list_settings.word_of(annotation) == word


@dataclass
class Config:
    layers: "int" = 1
    share: "bool | None" = None
    loss: "NotImported | None" = None  # type: ignore[name-defined] # noqa: F821
    made: int = field(default=0, init=False)


class Strategy:
    def __init__(self, depth: int, ddp: str = "megatron", *, names=(), **kwargs: Any) -> None: ...


@pytest.mark.usefixtures("torch")
def test_the_settings_of_dataclasses_and_of_classes() -> None:
    """What another group makes is no setting; nor is what is not annotated, or annotated with an unknown name."""
    kinds = {"a.Config": Config, "a.Strategy": Strategy}
    groups = {"model.config": "a.Config", "trainer.strategy": "a.Strategy", "trainer.strategy.ddp": "a.Config"}
    found = dict(list_settings.settings(SimpleNamespace(GROUPS=groups, class_of=kinds.__getitem__)))
    assert found == {
        "model.config.layers": "int",
        "model.config.share": "bool",
        "trainer.strategy.depth": "int",
        "trainer.strategy.ddp.layers": "int",
        "trainer.strategy.ddp.share": "bool",
    }
