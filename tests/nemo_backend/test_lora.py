"""LoRA in NeMo's words: fused matrices and their parts."""

from collections.abc import Callable

import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.measuring.flops import ADAPTED_MATRICES
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, Lora, Scalar
from nemo_backend import BACKEND
from nemo_backend.lora import LORA_TARGETS

Resolve = Callable[..., Benchmark]

ADAPTERS: dict[str, Scalar] = {"peft.dim": 16, "peft.alpha": 32, "peft.target_modules": "linear_qkv,linear_fc2"}


def test_adapters_in_common_words() -> None:
    assert BACKEND.lora({**ADAPTERS, "peft.dropout": 0.25}) == Lora(
        rank=16, alpha=32.0, dropout=0.25, targets=["query_key_value", "mlp_output"]
    )
    assert BACKEND.lora(ADAPTERS).dropout == 0


def test_each_matrix_that_adapters_stand_beside_has_a_size() -> None:
    assert set(LORA_TARGETS.values()) == set(ADAPTED_MATRICES)
    assert len(set(LORA_TARGETS.values())) == len(LORA_TARGETS)


def test_separate_adapters_in_common_words_and_back() -> None:
    wanted = Lora(rank=4, alpha=8.0, dropout=0.0, targets=["query", "value", "attention_output", "gate", "up"])
    knobs = BACKEND.lora_settings_for("nemo", wanted)
    assert knobs["peft.target_modules"] == "linear_proj,linear_q,linear_v,linear_fc1_gate,linear_fc1_up"
    found = BACKEND.lora(knobs)
    assert sorted(found.targets) == sorted(wanted.targets)
    assert (found.rank, found.alpha) == (4, 8.0)


def test_alpha_is_whole_in_nemo() -> None:
    with pytest.raises(RequestError, match=r"alpha as a whole number, not 2\.5") as caught:
        BACKEND.lora_settings_for("nemo", Lora(rank=4, alpha=2.5, dropout=0.0, targets=["query"]))
    assert caught.value.where == "--set=lora_alpha"


def test_adapters_beside_a_fused_matrix_and_beside_its_parts_are_refused() -> None:
    with pytest.raises(RequestError, match="beside a fused matrix, and beside parts of one"):
        BACKEND.lora({**ADAPTERS, "peft.target_modules": "linear_q,linear_fc1"})


def test_a_setting_that_only_fused_adapters_have_is_refused(resolved: Resolve) -> None:
    chosen = {"lora_targets": "q,v", "peft.a2a_experimental": "false"}
    with pytest.raises(RequestError, match="no effect on separate adapters"):
        resolved(task="lora", chosen=chosen)


def test_the_bridge_has_no_separate_adapters() -> None:
    asked = Request(
        backend="nemo",
        engine="bridge",
        model="llama3_70b",
        task="lora",
        hardware="h100",
        settings={"checkpoint.pretrained_checkpoint": "/weights", "lora_targets": "q,k,v,o"},
    )
    with pytest.raises(RequestError, match="fused matrices alone"):
        resolve(asked, Configs(), BACKEND)


@pytest.mark.parametrize("missing", ADAPTERS)
def test_an_adapter_that_is_not_stated_whole_is_refused(missing: str) -> None:
    with pytest.raises(RequestError) as caught:
        BACKEND.lora({name: value for name, value in ADAPTERS.items() if name != missing})
    assert caught.value.what == f"{missing} is not stated"
    assert caught.value.where == f"--set={missing}"
    assert caught.value.next_command.startswith(f"--set={missing}=")


def test_a_place_without_an_adapter_gets_the_nearest() -> None:
    with pytest.raises(
        RequestError, match="no adapter stands beside 'linear_qvk': did you mean 'linear_qkv'"
    ) as caught:
        BACKEND.lora({**ADAPTERS, "peft.target_modules": "linear_fc1,linear_qvk"})
    assert caught.value.next_command == "--set=peft.target_modules=linear_qkv,linear_proj,linear_fc1,linear_fc2"
