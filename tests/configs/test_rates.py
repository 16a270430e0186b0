"""The connections of the devices: each with its source, and none impossible."""

import pytest

from benchmarks.configs import Configs
from benchmarks.model.published_rows import read_references
from benchmarks.values import Hardware

CONFIGS = Configs()
HARDWARE = [CONFIGS.hardware(name) for name in CONFIGS.names("hardware")]
RATED = [one for one in HARDWARE if one.rates]


def name_of(hardware: Hardware) -> str:
    return hardware.name


def test_the_devices_of_the_references_have_rates() -> None:
    assert {one.name for one in RATED} >= {"h100", "h200", "b200", "b300", "gb200", "gb300", "a100"}
    assert {row.hardware for row in read_references(CONFIGS.root)} <= {one.name for one in RATED}


@pytest.mark.parametrize("hardware", RATED, ids=name_of)
def test_rates_are_sourced_and_above_what_is_reached(hardware: Hardware) -> None:
    assert hardware.rates.keys() == {"memory", "node", "network"}
    for rate in hardware.rates.values():
        assert len(rate.source) > 10
        assert bool(rate.achievable_source) == (rate.achievable_gb_s is not None)
        assert 0.7 < (rate.achievable_gb_s or rate.gb_s) / rate.gb_s <= 1
    memory, node, network = (hardware.rates[name].gb_s for name in ("memory", "node", "network"))  # type: ignore[index]
    assert memory > node >= network
