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
            loss = on_all_ranks(trainer.callback_metrics["val_loss"])
            seconds = time.perf_counter() - self._begun
            recorder.pause(trainer.global_step - 1, seconds)
            if evaluations.take(trainer.global_step, seconds, loss):
                trainer.should_stop = True

    return [Evaluate()]


def on_all_ranks(loss):
    """The loss of the last stage, where alone it is computed: the largest, for the others have zero."""
    import torch

    found = torch.as_tensor(loss, dtype=torch.float32, device=torch.cuda.current_device()).clone()
    torch.distributed.all_reduce(found, op=torch.distributed.ReduceOp.MAX)
    return float(found)
