"""Short names of runs: each is contained in one name alone."""

import pytest

from benchmarks.runs.short_names import short_names

FIRST = "20261124T063830Z-jax-llama2_tiny-pretrain-bf16-1xcpu-6828"
SECOND = "20261124T063831Z-jax-llama2_tiny-pretrain-bf16-1xcpu-97f0"


def test_the_last_four_characters_do_where_nobody_else_has_them() -> None:
    assert short_names([FIRST, SECOND], [FIRST, SECOND]) == {FIRST: "6828", SECOND: "97f0"}


def test_a_name_that_another_contains_is_longer() -> None:
    in_the_date = FIRST.replace("063830Z", "682800Z").replace("6828", "aaaa")
    same_end = FIRST.replace("jax", "nemo")
    among = [FIRST, in_the_date, same_end]
    found = short_names(among, among)
    assert all(sum(short in name for name in among) == 1 for short in found.values())
    assert found[FIRST] != "6828"


def test_runs_that_are_not_shown_count_too() -> None:
    assert short_names([FIRST], [FIRST, SECOND.replace("97f0", "6828")])[FIRST] != "6828"


def test_a_name_without_a_short_end_is_whole() -> None:
    assert short_names(["a", "b"], ["a", "b"]) == {"a": "a", "b": "b"}


@pytest.mark.parametrize(
    ("name", "other", "short"),
    [
        ("baseline-fp8", "baseline-bf16", "baseline-fp8"),  # short enough to be whole
        ("llama2-before-the-driver-update-550", "llama2-before-the-driver-update-570", "update-550"),
        ("h100-of-october_with_pgle_flags-on", "h100-of-november_with_pgle_flags-on", "october_with_pgle_flags-on"),
        (f"{FIRST} (the one of the paper)", SECOND, "the paper)"),
    ],
)
def test_a_renamed_folder_is_not_cut_within_a_word(name: str, other: str, short: str) -> None:
    assert short_names([name, other], [name, other])[name] == short


def test_many_renamed_folders_take_no_time() -> None:
    names = [f"a-long-name-of-a-run-that-somebody-gave-{number:05}" for number in range(3000)]
    assert len(set(short_names(names, names).values())) == 3000
