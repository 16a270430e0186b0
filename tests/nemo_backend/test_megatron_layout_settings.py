"""A layout as Megatron's settings, for both engines, and back again."""

import pytest

from benchmarks.configs import Configs
from benchmarks.values import Parallelism
from nemo_backend import BACKEND

H100 = Configs().hardware("h100")
CPU = Configs().hardware("cpu")
PLACES = {"nemo": "trainer.strategy", "bridge": "model"}


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
