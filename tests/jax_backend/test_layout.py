"""MaxText's mesh axes in common words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.configs import Configs
from benchmarks.values import Hardware, Parallelism
from jax_backend import BACKEND
from jax_backend.planning import AXES, between_nodes, parallelism, stated_layout


def test_axes_within_and_between_nodes_multiply() -> None:
    knobs = {"ici_fsdp_parallelism": 8, "dcn_fsdp_parallelism": 16, "dcn_data_parallelism": 4}
    assert parallelism(knobs) == Parallelism(fsdp=128, data=4)
    assert between_nodes(knobs) == 64


def test_every_axis_is_a_setting_of_maxtext_and_every_other_axis_is_reserved() -> None:
    of_maxtext = {name for name in BACKEND.settings() if name.startswith(("ici_", "dcn_")) and "_parallelism" in name}
    assert set(AXES) <= of_maxtext
    assert of_maxtext - set(AXES) <= BACKEND.reserved_settings.keys()


def test_what_maxtext_would_choose_itself_is_written_out() -> None:
    assert stated_layout({}) == {"ici_fsdp_parallelism": 1, "dcn_data_parallelism": 1}
    assert stated_layout({"ici_fsdp_parallelism": 8, "steps": 3}) == {
        "ici_fsdp_parallelism": 8,
        "dcn_data_parallelism": 1,
    }


@given(st.dictionaries(st.sampled_from(AXES), st.integers(1, 64)))
def test_no_device_is_lost(knobs: dict[str, int]) -> None:
    product = 1
    for size in knobs.values():
        product *= size
    assert parallelism(dict(knobs)).devices == product


# --- and back: a layout as settings ----------------------------------------------------------------

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


@pytest.mark.parametrize(
    ("share", "gpus", "hardware", "settings"),
    [
        (  # inner axes stay within a node
            Parallelism(tensor=2, fsdp=32),
            64,
            H100,
            {
                "ici_tensor_parallelism": 2,
                "ici_fsdp_parallelism": 4,
                "dcn_fsdp_parallelism": 8,
                "ici_data_parallelism": 1,
                "dcn_data_parallelism": 1,
            },
        ),
        (  # all devices of a CPU are one node
            Parallelism(fsdp=4, data=4),
            16,
            CPU,
            {
                "ici_fsdp_parallelism": 4,
                "dcn_fsdp_parallelism": 1,
                "ici_data_parallelism": 4,
                "dcn_data_parallelism": 1,
            },
        ),
        (Parallelism(pipeline=2, fsdp=32), 64, H100, None),
        (Parallelism(pipeline=2, virtual_pipeline=2, fsdp=32), 64, H100, None),
        (Parallelism(tensor=16, fsdp=4), 64, H100, None),
    ],
)
def test_settings_of_a_layout_are_none_where_it_has_none(
    share: Parallelism, gpus: int, hardware: Hardware, settings: dict[str, int] | None
) -> None:
    assert BACKEND.layout_settings_for("maxtext", share, gpus, hardware) == settings
