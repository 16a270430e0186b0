"""Ends Lightning's training loop before its last step, on all processes after the same one (early_stop/stopping.py).

Runs inside NeMo's environment, loaded by its path.
"""

KEY = "stepmark/last_step"
BEGUN = 0  # a step has ended on the device before it is looked at, and no other has begun


class DefaultStore:
    """The key-value store in which torch's processes have met."""

    def _store(self):
        from torch.distributed import distributed_c10d

        return distributed_c10d._get_default_store()  # torch has no public name for it

    def say(self, text):
        self._store().set(KEY, text)

    def heard(self):
        store = self._store()
        return store.get(KEY).decode() if store.check([KEY]) else None


def callbacks(early_stop):
    """For Lightning, after the clock: after each step it asks whether to go on, and all must say no at once."""
    if early_stop is None:
        return []
    from lightning.pytorch.callbacks import Callback

    class LastStep(Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):  # noqa: ARG002
            if trainer.global_step - 1 == early_stop.last:
                trainer.should_stop = True

    return [LastStep()]
