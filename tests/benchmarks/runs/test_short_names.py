"""Short names of runs: each is contained in one name alone."""

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


def test_a_renamed_folder_is_called_by_its_whole_name() -> None:
    names = ["llama2-before-the-driver-update-550", "llama2-before-the-driver-update-570"]
    assert short_names(names, names) == {name: name for name in names}
