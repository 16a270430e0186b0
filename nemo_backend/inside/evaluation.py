"""Evaluates between two steps of NeMo's loop, and ends it at the target.

Runs inside NeMo's environment, loaded by its path. The validation loop, its data and its loss are NeMo's own; when it
runs is asked of the goal, because Lightning evaluates every so many steps alone, and knows no first time.
"""

import time


def callbacks(evaluations, recorder):
    """For Lightning, after the clock: the step is written down before the evaluation begins."""
    if evaluations is None:
        return []
    from lightning.pytorch.callbacks import Callback

    class Evaluate(Callback):
        def __init__(self):
            self._begun = None

        def on_train_start(self, trainer, pl_module):  # noqa: ARG002
            loop = trainer.fit_loop.epoch_loop
            loop._should_check_val_fx = lambda _fetcher: evaluations.goal.due(trainer.global_step)

        def on_validation_start(self, trainer, pl_module):  # noqa: ARG002
            self._begun = time.perf_counter()

        def on_validation_end(self, trainer, pl_module):  # noqa: ARG002
            loss = agreed(float(trainer.callback_metrics["val_loss"]), trainer)
            seconds = time.perf_counter() - self._begun
            recorder.pause(trainer.global_step - 1, seconds)
            if evaluations.take(trainer.global_step, seconds, loss):
                trainer.should_stop = True

    return [Evaluate()]


def agreed(loss, trainer):
    """Rank 0's, on every rank: NeMo has it on all of them, but those that decide by other last bits would hang.

    Through the store in which the processes have met: a collective of the default group waited for ever here.
    """
    if trainer.world_size == 1:
        return loss
    from torch.distributed import distributed_c10d

    store, key = distributed_c10d._get_default_store(), f"stepmark/evaluation/{trainer.global_step}"
    if trainer.global_rank == 0:
        store.set(key, repr(loss))
        return loss
    return float(store.get(key))  # waits for it
