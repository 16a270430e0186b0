"""Short names of runs: each ends one name only."""

from benchmarks.runs.find_runs import short_names

FIRST = "20261124T063830Z-jax-llama2_tiny-pretrain-bf16-1xcpu-6828"
SECOND = "20261124T063831Z-jax-llama2_tiny-pretrain-bf16-1xcpu-97f0"


def test_the_last_four_characters_do_where_nobody_else_has_them() -> None:
    assert short_names([FIRST, SECOND], [FIRST, SECOND]) == {FIRST: "6828", SECOND: "97f0"}


def test_runs_that_are_not_shown_count_too() -> None:
    assert short_names([FIRST], [FIRST, SECOND.replace("97f0", "6828")])[FIRST] != "6828"


def test_a_name_without_a_short_end_is_whole() -> None:
    assert short_names(["a", "b"], ["a", "b"]) == {"a": "a", "b": "b"}


def test_a_renamed_folder_is_called_by_its_whole_name() -> None:
    names = ["llama2-before-the-driver-update-550", "llama2-before-the-driver-update-570"]
    assert short_names(names, names) == {name: name for name in names}
