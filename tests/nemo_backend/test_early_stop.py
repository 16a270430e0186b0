"""How NeMo's processes agree on a last step: through torch's default store, which stands in here."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tests.nemo_backend.conftest import by_path

PutModules = Callable[[Mapping[str, Mapping[str, Any]]], None]


class Store:
    """Knows what torch's does: it waits for a key that is not there, unless it is asked whether it is."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        self.kept[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.kept for key in keys)

    def get(self, key: str) -> bytes:
        assert key in self.kept, "it would wait for ever"
        return self.kept[key]


@pytest.fixture
def early_stop() -> Any:
    return by_path("early_stop")


def test_what_one_process_says_another_hears(early_stop: Any, put_modules: PutModules) -> None:
    store = Store()
    internals = SimpleNamespace(_get_default_store=lambda: store)
    put_modules({"torch.distributed": {"distributed_c10d": internals}})
    channel = early_stop.DefaultStore()
    assert channel.heard() is None
    channel.say("17,19")
    assert channel.heard() == "17,19"


def test_lightning_is_told_after_the_last_step_and_not_before(early_stop: Any, put_modules: PutModules) -> None:
    put_modules({"lightning.pytorch.callbacks": {"Callback": object}})
    (callback,) = early_stop.callbacks(SimpleNamespace(last=19))
    for done, ends in ((18, False), (19, False), (20, True)):  # Lightning has counted the step that has just ended
        trainer = SimpleNamespace(global_step=done, should_stop=False)
        callback.on_train_batch_end(trainer, None, None, None, 0)
        assert trainer.should_stop == ends


def test_nothing_is_asked_of_a_run_that_trains_all_its_steps(early_stop: Any) -> None:
    assert early_stop.callbacks(None) == []
