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


@pytest.mark.parametrize(("first", "second"), [(False, False), (False, True), (True, False), (True, True)])
def test_an_exclusive_test_runs_without_others(tmp_path: Path, waiting: Waiting, first: bool, second: bool) -> None:
    ours = Turns(tmp_path)
    ours.take(first)
    _, got = waiting(second)
    assert got.wait(MOMENT if first or second else LONG) is not (first or second)
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
