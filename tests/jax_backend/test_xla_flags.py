"""XLA's flags as data: the table is whole, a flag that is gone is refused with what to use instead, groups fit."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.values import Hardware
from jax_backend import BACKEND, xla_flags
from jax_backend.inside import check_request
from launch.environments import venvs
from tests.jax_backend.asked import each

CONFIGS = Configs()
H100, B200, CPU = (CONFIGS.hardware(name) for name in ("h100", "b200", "cpu"))
PINNED = "0.12.0.1"
TABLE = xla_flags.table()


# --- the table ----------------------------------------------------------------------------------------


def flags_in_use() -> Iterator[tuple[str, str, str]]:
    """where, flag and value: of every recipe and every group."""
    for recipe in CONFIGS.recipes():
        for overlay in recipe.overlays:
            yield from ((recipe.name, name, value) for name, value in overlay.xla_flags.items())
    for name, group in TABLE.groups.items():
        yield from ((name, flag, value) for flag, value in group.flags.items())


def test_every_flag_of_every_recipe_and_group_is_known_to_the_pinned_jaxlib() -> None:
    lock = (Path(xla_flags.__file__).parent / "requirements.lock").read_text()
    assert f"jaxlib=={PINNED} " in lock
    assert TABLE.current[-1] == TABLE.versions[-1] == PINNED
    used = list(flags_in_use())
    assert len({name for _, name, _ in used}) > 15
    assert [(where, name) for where, name, _ in used if PINNED not in TABLE.flags[name].versions] == []


def test_every_row_says_what_for_and_whence() -> None:
    for family, names in TABLE.families.items():
        assert {CONFIGS.hardware(name).kind for name in names} == {"gpu"}, family
    for name, row in TABLE.flags.items():
        assert row.reason and row.source and row.hardware, name
        assert row.versions == [asked for asked in TABLE.versions if asked in row.versions], f"{name}: in order"
    for name, group in TABLE.groups.items():
        assert group.reason and group.source and (group.flags or group.environment), name


def test_what_is_to_be_used_instead_is_known_itself() -> None:
    for name, row in TABLE.flags.items():
        for value in row.successors:
            successors = [flag.removeprefix("--").partition("=")[0] for flag in xla_flags.successors_of(name, value)]
            assert successors
            assert all(PINNED in TABLE.flags[other].versions for other in successors), name


# --- refusals -----------------------------------------------------------------------------------------


@each("flags_that_are_gone", "flag", "next")
def test_what_to_use_instead_is_the_next_command(flag: str, next: str) -> None:
    (refusal,) = xla_flags.refusals(dict([flag.split("=")]))
    assert refusal.next_command == next


def test_what_is_not_listed_is_left_to_the_compiler_and_an_empty_value_is_a_value() -> None:
    flags = {"xla_gpu_enable_command_buffer": "", "xla_gpu_not_in_the_table": "1", "xla_gpu_graph_level": ""}
    (refusal,) = xla_flags.refusals(flags)
    assert refusal.where == "--set=xla_gpu_graph_level="
    assert "known to jaxlib 0.4.35" in refusal.why


@each("facts_of_flags", "flag", "status", "successor", "words")
def test_facts_say_what_for_who_knows_it_and_what_to_use_instead(
    flag: str, status: str, successor: str, words: str
) -> None:
    found = xla_flags.fact(flag)
    assert (found.flag, found.status, found.successor) == (flag, status, successor)
    assert words in found.text


# --- groups -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hardware", "cure"),
    [
        ("hoper_baseline", H100, ""),
        ("hopper_baseline", B200, "--set=xla_group"),
        ("hopper_baseline", CPU, "--set=xla_group"),
        ("pgle_auto", CPU, "--set=xla_group --pgle=nsys"),
    ],
)
def test_an_unknown_group_and_one_for_another_device_are_refused(name: str, hardware: Hardware, cure: str) -> None:
    with pytest.raises(RequestError) as refused:
        BACKEND.flag_group(name, hardware)
    assert refused.value.next_command == cure
    assert BACKEND.flag_group("hopper_baseline", H100).flags
    assert BACKEND.flag_group("crash_on_hang", B200)


# --- the program that asks ------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_table_is_what_the_installed_jaxlib_says() -> None:
    python = venvs.ensure(BACKEND.environment("maxtext"))
    names = sorted(TABLE.flags)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda name: check_request.ask([f"--{name}="], str(python)), names))
    known = [name for name, one in zip(names, answers, strict=True) if not check_request.UNKNOWN.search(one[1])]
    assert known == [name for name in names if PINNED in TABLE.flags[name].versions]


@pytest.mark.slow
def test_the_pinned_jaxlib_takes_every_value_in_use_and_what_is_to_be_used_instead() -> None:
    python = str(venvs.ensure(BACKEND.environment("maxtext")))
    rows = [(name, value) for name, row in TABLE.flags.items() for value in row.successors]
    instead = [flag for name, value in rows for flag in xla_flags.successors_of(name, value)]
    used = [f"--{name}={value}" for _, name, value in flags_in_use()]
    assert check_request.problems(sorted({*used, *instead}), python) == {}
