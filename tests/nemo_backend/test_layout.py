"""Megatron's parallel sizes in common words, wherever an engine keeps them; and LoRA in NeMo's words."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.model.flops import ADAPTED_MATRICES
from benchmarks.values import Lora, Parallelism, Scalar
from nemo_backend import BACKEND
from nemo_backend.layout import PLACES, SIZES, parallelism
from nemo_backend.lora import LORA_TARGETS

CONFIGS = Configs()
H100, CPU = CONFIGS.hardware("h100"), CONFIGS.hardware("cpu")


@pytest.mark.parametrize("engine", PLACES)
@pytest.mark.parametrize(
    "share",
    [
        Parallelism(tensor=4, pipeline=4, context=2, virtual_pipeline=5, data=2),
        Parallelism(data=64),
        Parallelism(tensor=8, data=8),
    ],
)
def test_settings_make_the_layout_that_was_meant(engine: str, share: Parallelism) -> None:
    settings = BACKEND.layout_settings_for(engine, share, 64, H100)
    assert settings is not None
    assert BACKEND.parallelism(settings, 64) == share
    assert settings.keys() <= BACKEND.settings().keys()
    place = PLACES[engine]
    assert settings.pop(f"{place}.sequence_parallel") is (share.tensor > 1)
    assert settings == {f"{place}.{size}": getattr(share, word) for word, size in SIZES.items()}


def test_a_layout_that_an_engine_has_not_is_none() -> None:
    sharded = BACKEND.layout_settings_for("bridge", Parallelism(tensor=2, fsdp=32), 64, H100)  # as in the recipe
    assert sharded is not None
    assert BACKEND.parallelism({**sharded, "ddp.use_megatron_fsdp": True}, 64) == Parallelism(tensor=2, fsdp=32)
    for engine, share in (
        ("bridge", Parallelism(fsdp=8, data=8)),
        ("nemo", Parallelism(fsdp=64)),
        ("nemo", Parallelism(tensor=16, data=4)),
    ):
        assert BACKEND.layout_settings_for(engine, share, 64, H100) is None
    on_cpu = BACKEND.layout_settings_for("nemo", Parallelism(tensor=2, data=2), 4, CPU)
    assert on_cpu is not None
    assert on_cpu["trainer.strategy.sequence_parallel"] is False


@given(
    st.sampled_from(sorted(PLACES.values())),
    st.dictionaries(st.sampled_from(sorted(SIZES.values())), st.integers(1, 9)),
    st.integers(1, 2000),
)
def test_no_device_is_lost_or_the_layout_is_refused(place: str, sizes: dict[str, int], gpus: int) -> None:
    replica = math.prod(size for name, size in sizes.items() if not name.startswith("virtual"))
    try:
        found = parallelism({f"{place}.{name}": size for name, size in sizes.items()}, gpus)
    except RequestError as refusal:
        assert gpus % replica
        assert refusal.next_command == f"--gpus={math.ceil(gpus / replica) * replica}"
        return
    assert (found.devices, found.data) == (gpus, gpus // replica)


# --- LoRA ---------------------------------------------------------------------------------------

ADAPTERS: dict[str, Scalar] = {"peft.dim": 16, "peft.alpha": 32, "peft.target_modules": "linear_qkv,linear_fc2"}


@pytest.mark.parametrize(
    "text", ["linear_qkv,linear_fc2", "[linear_qkv,linear_fc2]", "[ 'linear_qkv', 'linear_fc2' ]"]
)
def test_adapters_in_common_words_however_they_are_typed(text: str) -> None:
    found = BACKEND.lora({**ADAPTERS, "peft.target_modules": text, "peft.dropout": 0.25})
    assert found == Lora(rank=16, alpha=32.0, dropout=0.25, targets=["query_key_value", "mlp_output"])
    assert BACKEND.lora(ADAPTERS).dropout == 0


def test_separate_adapters_in_common_words_and_back() -> None:
    assert sorted(LORA_TARGETS.values()) == sorted(ADAPTED_MATRICES)
    wanted = Lora(rank=4, alpha=8.0, dropout=0.0, targets=["query", "value", "attention_output", "gate", "up"])
    knobs = BACKEND.lora_settings_for("nemo", wanted)
    assert knobs["peft.target_modules"] == "linear_proj,linear_q,linear_v,linear_fc1_gate,linear_fc1_up"
    found = BACKEND.lora(knobs)
    assert (sorted(found.targets), found.rank, found.alpha) == (sorted(wanted.targets), 4, 8.0)


@pytest.mark.parametrize("targets", ["linear_q,linear_fc1", "linear_qkv,linear_qkv", "linear_fc1,linear_qvk"])
def test_matrices_that_nemo_cannot_adapt_are_refused(targets: str) -> None:
    with pytest.raises(RequestError, match=r"peft\.target_modules") as caught:
        BACKEND.lora({**ADAPTERS, "peft.target_modules": targets})
    assert caught.value.next_command == "--set=peft.target_modules=linear_qkv,linear_proj,linear_fc1,linear_fc2"


@pytest.mark.parametrize("missing", ADAPTERS)
def test_an_adapter_that_is_not_stated_whole_is_refused(missing: str) -> None:
    with pytest.raises(RequestError, match=f"{missing} has no value") as caught:
        BACKEND.lora({name: value for name, value in ADAPTERS.items() if name != missing})
    assert caught.value.next_command.startswith(f"--set={missing}=")
