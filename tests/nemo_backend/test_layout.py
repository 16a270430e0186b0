"""Megatron's parallel sizes in common words, wherever an engine keeps them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.values import Parallelism
from nemo_backend import BACKEND
from nemo_backend.layout import PLACES, SETTINGS, SIZES, parallelism
from nemo_backend.mlperf_planning import LAYOUT_SETTINGS

EACH_PLACE = pytest.mark.parametrize("place", PLACES.values())


@EACH_PLACE
def test_each_size_has_its_word(place: str) -> None:
    knobs = {
        f"{place}.tensor_model_parallel_size": 4,
        f"{place}.pipeline_model_parallel_size": 3,
        f"{place}.context_parallel_size": 2,
        f"{place}.virtual_pipeline_model_parallel_size": 5,
    }
    found = parallelism(dict(knobs), 48)
    assert found == Parallelism(data=2, tensor=4, pipeline=3, context=2, virtual_pipeline=5)
    assert knobs.keys() <= SETTINGS


@pytest.mark.parametrize("gpus", [1, 8, 16, 31, 33, 48 + 1])
def test_gpus_that_are_no_multiple_of_a_replica_are_refused(gpus: int) -> None:
    knobs = {
        "trainer.strategy.tensor_model_parallel_size": 4,
        "trainer.strategy.pipeline_model_parallel_size": 4,
        "trainer.strategy.context_parallel_size": 2,
    }
    with pytest.raises(RequestError) as caught:
        parallelism(dict(knobs), gpus)
    assert caught.value.what == f"{gpus} GPUs cannot be shared out by tensor 4 x pipeline 4 x context 2 = 32"
    assert "TP x PP x CP x DP = GPUs" in caught.value.why
    assert "a multiple of 32" in caught.value.next_command


@EACH_PLACE
@pytest.mark.parametrize("size", SIZES.values())
@pytest.mark.parametrize("number", [0, -2])
def test_a_size_below_one_is_refused(place: str, size: str, number: int) -> None:
    with pytest.raises(RequestError, match="it must be 1 or more") as caught:
        parallelism({f"{place}.{size}": number}, 8)
    assert caught.value.next_command == f"--set={place}.{size}=1"


@given(st.dictionaries(st.sampled_from(sorted(SIZES.values())), st.integers(1, 9)), st.integers(1, 2000))
def test_no_device_is_lost_or_the_layout_is_refused(sizes: dict[str, int], gpus: int) -> None:
    replica = math.prod(size for name, size in sizes.items() if not name.startswith("virtual"))
    try:
        found = parallelism({f"trainer.strategy.{name}": size for name, size in sizes.items()}, gpus)
    except RequestError:
        assert gpus % replica
        return
    assert found.devices == gpus
    assert found.data == gpus // replica


def test_the_backends_layout_settings_are_settings_of_its_engines() -> None:
    assert BACKEND.layout_settings == SETTINGS | LAYOUT_SETTINGS  # and those of the submissions
    assert BACKEND.settings().keys() >= SETTINGS
    assert not SETTINGS & BACKEND.reserved_settings.keys()


# --- and back: a layout as settings ----------------------------------------------------------------

H100 = Configs().hardware("h100")
CPU = Configs().hardware("cpu")


@pytest.mark.parametrize("engine", ["nemo", "bridge"])
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
    assert all(name.startswith(f"{PLACES[engine]}.") for name in settings)
    assert settings.keys() <= BACKEND.settings().keys()
    assert settings[f"{PLACES[engine]}.sequence_parallel"] is (share.tensor > 1)


def test_megatron_fsdp_is_the_recipes_word_and_its_sizes_are_the_same() -> None:
    share = Parallelism(tensor=2, fsdp=32)
    settings = BACKEND.layout_settings_for("bridge", share, 64, H100)
    assert settings is not None
    assert BACKEND.parallelism({**settings, "ddp.use_megatron_fsdp": True}, 64) == share
    assert BACKEND.layout_settings_for("bridge", Parallelism(fsdp=8, data=8), 64, H100) is None


def test_what_it_has_not_is_none() -> None:
    assert BACKEND.layout_settings_for("nemo", Parallelism(fsdp=64), 64, H100) is None
    assert BACKEND.layout_settings_for("nemo", Parallelism(tensor=16, data=4), 64, H100) is None


def test_a_cpu_has_no_sequence_parallelism() -> None:
    settings = BACKEND.layout_settings_for("nemo", Parallelism(tensor=2, data=2), 4, CPU)
    assert settings is not None
    assert settings["trainer.strategy.sequence_parallel"] is False
