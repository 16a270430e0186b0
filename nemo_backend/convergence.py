"""What NeMo is told of a run that trains towards a target: evaluation, optimizer and schedule."""

from benchmarks.convergence.goals import evaluation_batches
from benchmarks.values import Benchmark, Scalar, Schedule

NEVER = 10**9  # Lightning's own trigger: evaluation.py is asked instead


def schedule_settings(schedule: Schedule) -> dict[str, Scalar]:
    """NeMo's optimizer and learning rate; its cosine ends with the run."""
    return {
        "optim.config.lr": schedule.learning_rate,
        "optim.config.optimizer": "adam",
        "optim.config.adam_beta1": schedule.beta1,
        "optim.config.adam_beta2": schedule.beta2,
        "optim.config.adam_eps": schedule.epsilon,
        "optim.config.weight_decay": schedule.weight_decay,
        "optim.config.clip_grad": schedule.clip_norm,
        "optim.lr_scheduler.max_steps": schedule.steps,
        "optim.lr_scheduler.warmup_steps": schedule.warmup_steps,
        "optim.lr_scheduler.constant_steps": 0,
        "optim.lr_scheduler.min_lr": schedule.final_learning_rate,
    }


# The weights that are shipped were trained by MaxText, whose Llama does not divide attention by the root of its
# heads' size: its queries have learnt to.
SCALE_OF_GIVEN_WEIGHTS = {"model.config.softmax_scale": 1.0}


def evaluation_settings(benchmark: Benchmark) -> dict[str, Scalar]:
    towards = benchmark.convergence
    return {
        **(SCALE_OF_GIVEN_WEIGHTS if towards and towards.weights else {}),
        "trainer.limit_val_batches": evaluation_batches(benchmark),
        "trainer.val_check_interval": NEVER,
        "trainer.check_val_every_n_epoch": "none",
    }


def stated(benchmark: Benchmark) -> dict[str, Scalar]:
    """All that the benchmark fixes."""
    towards = benchmark.convergence
    return {**schedule_settings(towards.schedule), **evaluation_settings(benchmark)} if towards else {}
