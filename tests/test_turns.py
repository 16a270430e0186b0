"""The turns that the tests of two workers take."""

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.turns import Turns

Waiting = Callable[[bool], tuple[Turns, Event]]
MOMENT, LONG = 0.1, 30.0


@pytest.fixture
def waiting(tmp_path: Path) -> Waiting:
    """Another worker that takes a turn, and whether it has got it."""

    def begin(alone: bool) -> tuple[Turns, Event]:
        other, got = Turns(tmp_path), Event()

        def take() -> None:
            other.take(alone)
            got.set()

        Thread(target=take, daemon=True).start()
        return other, got

    return begin


def test_tests_in_general_run_together(tmp_path: Path, waiting: Waiting) -> None:
    ours = Turns(tmp_path)
    ours.take(alone=False)
    assert waiting(False)[1].wait(LONG)
    ours.give_back()


@pytest.mark.parametrize(("first", "second"), [(False, True), (True, False), (True, True)])
def test_one_that_is_alone_runs_beside_nobody(tmp_path: Path, waiting: Waiting, first: bool, second: bool) -> None:
    ours = Turns(tmp_path)
    ours.take(first)
    _, got = waiting(second)
    assert not got.wait(MOMENT)
    ours.give_back()
    assert got.wait(LONG)


def test_who_waits_to_be_alone_is_not_overtaken(tmp_path: Path, waiting: Waiting) -> None:
    ours = Turns(tmp_path)
    ours.take(alone=False)
    alone, has_room = waiting(True)
    assert not has_room.wait(MOMENT)
    _, overtakes = waiting(False)
    assert not overtakes.wait(MOMENT)
    ours.give_back()
    assert has_room.wait(LONG)
    assert not overtakes.is_set()
    alone.give_back()
    assert overtakes.wait(LONG)


def test_a_turn_alone_that_is_not_given_back_goes_on(tmp_path: Path, waiting: Waiting) -> None:
    ours = Turns(tmp_path)
    ours.take(alone=True)
    _, got = waiting(False)
    ours.take(alone=True)
    assert not got.wait(MOMENT)
    ours.give_back()
    assert got.wait(LONG)
