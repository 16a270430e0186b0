"""A layout as MaxText's settings, and back again."""

import pytest

from benchmarks.configs import Configs
from benchmarks.values import Parallelism
from jax_backend import BACKEND

H100 = Configs().hardware("h100")
CPU = Configs().hardware("cpu")


@pytest.mark.parametrize(
    "share",
    [
        Parallelism(fsdp=64),
        Parallelism(fsdp=16, data=4),
        Parallelism(tensor=8, fsdp=8),
        Parallelism(tensor=2, context=2, fsdp=16),
        Parallelism(data=64),
    ],
)
def test_settings_make_the_layout_that_was_meant(share: Parallelism) -> None:
    settings = BACKEND.layout_settings_for("maxtext", share, 64, H100)
    assert settings is not None
    assert BACKEND.parallelism(settings, 64) == share
    nodes = 1
    for name, size in settings.items():
        nodes *= int(size) if name.startswith("dcn_") else 1
    assert nodes == 8


def test_inner_axes_stay_within_a_node() -> None:
    assert BACKEND.layout_settings_for("maxtext", Parallelism(tensor=2, fsdp=32), 64, H100) == {
        "ici_tensor_parallelism": 2,
        "ici_fsdp_parallelism": 4,
        "dcn_fsdp_parallelism": 8,
        "ici_data_parallelism": 1,
        "dcn_data_parallelism": 1,
    }


def test_all_devices_of_a_cpu_are_one_node() -> None:
    settings = BACKEND.layout_settings_for("maxtext", Parallelism(fsdp=4, data=4), 16, CPU)
    assert settings == {
        "ici_fsdp_parallelism": 4,
        "dcn_fsdp_parallelism": 1,
        "ici_data_parallelism": 4,
        "dcn_data_parallelism": 1,
    }


@pytest.mark.parametrize(
    "share",
    [
        Parallelism(pipeline=2, fsdp=32),
        Parallelism(pipeline=2, virtual_pipeline=2, fsdp=32),
        Parallelism(tensor=16, fsdp=4),
    ],
)
def test_what_it_has_not_is_none(share: Parallelism) -> None:
    assert BACKEND.layout_settings_for("maxtext", share, 64, H100) is None
