"""A benchmark of configs/mlperf at a batch -> what a run trains towards; how a worker is told; what is refused."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from benchmarks.errors import RequestError
from benchmarks.inside.goal import FLAG, Goal
from benchmarks.request.slowdown import FLAG as SLOWDOWN
from benchmarks.values import Benchmark, Convergence, Scalar, Schedule

if TYPE_CHECKING:
    from benchmarks.mlperf.definitions import MlperfBenchmark

TASK = "mlperf"
RATE = "learning_rate"
# Texts and weights lie beside the benchmark that trains with them; every site has the checkout.
SHIPPED = "{repository}/configs/mlperf"
TRAIN, VALIDATION = "train", "validation"


def rate_wanted(settings: Mapping[str, str]) -> tuple[float | None, dict[str, str]]:
    """--set=learning_rate, which the rules leave open, in one word for every backend; and the other settings."""
    rest = {name: text for name, text in settings.items() if name != RATE}
    if RATE not in settings:
        return None, rest
    try:
        rate = float(settings[RATE])
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise RequestError(f"{RATE}={settings[RATE]}: a number above 0 is expected", where=f"--set={RATE}")
    return rate, rest


def convergence_of(
    wanted: "MlperfBenchmark", steps: int, batch: int, rate: float | None = None
) -> Convergence | None:
    """What a run of so many steps at this batch trains towards; None where a submission's own program trains it."""
    from benchmarks.mlperf.definitions import first_evaluation

    training = wanted.training
    if training is None:
        return None
    first = first_evaluation(wanted, batch)
    if first.step > steps:
        raise RequestError(
            f"the first evaluation comes after the last step: {first.step} over {steps}",
            where=f"--steps={steps}",
            why=f"{first.skipped} skipped + 1, times {wanted.evaluation.every_samples} samples at a batch of {batch} "
            f"sequences = {first.steps_apart} steps apart: step {first.step}",
            next_command=f"--steps={first.step} or more ({wanted.name} has {wanted.max_steps})",
        )
    if wanted.eval_samples % batch:
        raise RequestError(
            f"a batch of {batch} does not divide the {wanted.eval_samples} sequences of an evaluation",
            where="--set=global_batch_size",
            why="another number of sequences would be another evaluation",
            next_command=f"a batch that divides {wanted.eval_samples}",
        )
    optimizer, reference, rate = wanted.optimizer, wanted.reference, rate or training.learning_rate
    return Convergence(
        benchmark=wanted.name,
        text=training.text,
        weights=training.weights,
        target_loss=wanted.target.at_most,
        first_evaluation=first.step,
        evaluate_every=first.steps_apart,
        evaluation_sequences=wanted.eval_samples,
        reference=reference if reference and reference.batch == batch else None,
        schedule=Schedule(
            learning_rate=rate,
            final_learning_rate=rate * optimizer.end_rate_ratio,
            warmup_steps=optimizer.warmup_steps or 0,
            steps=steps,
            beta1=optimizer.beta_1,
            beta2=optimizer.beta_2,
            epsilon=optimizer.epsilon,
            weight_decay=optimizer.weight_decay,
            clip_norm=optimizer.gradient_clip_norm,
        ),
    )


def text_folder(benchmark: Benchmark) -> str:
    """Where the tokens lie, in a folder for each part."""
    return f"{SHIPPED}/{benchmark.data}"


def evaluation_batches(benchmark: Benchmark) -> int:
    return benchmark.convergence.evaluation_sequences // benchmark.global_batch_size if benchmark.convergence else 0


def goal_of(benchmark: Benchmark) -> Goal | None:
    towards, batch = benchmark.convergence, benchmark.global_batch_size
    if towards is None:
        return None
    cadence = (towards.first_evaluation, towards.evaluate_every)
    return Goal(towards.target_loss, *cadence, evaluation_batches(benchmark), batch)


def option(benchmark: Benchmark) -> list[str]:
    """What the worker of the measured phase is told."""
    goal, towards = goal_of(benchmark), benchmark.convergence
    if goal is None or towards is None:
        return []
    weights = [f"--weights={SHIPPED}/{towards.weights}"] if towards.weights else []
    return [f"{FLAG}={goal.text()}", *weights]


# --- what cannot have a target ----------------------------------------------------------------------


def refusals(benchmark: Benchmark, stated: Mapping[str, Scalar]) -> Iterator[RequestError]:
    """`stated` are the settings by which a backend trains as the rules say."""
    towards = benchmark.convergence
    if towards is None:
        return
    name, instead = towards.benchmark, f"--task={benchmark.trains}"
    flags = {
        SLOWDOWN: benchmark.inject_slowdown > 0,
        "--profile": benchmark.profile != "none",
        "--pgle": benchmark.pgle != "off",
    }
    for flag in (flag for flag, used in flags.items() if used):
        yield RequestError(
            f"{flag} does not go with --task={TASK}",
            where=flag,
            why="the run ends at its target, and its time to train is to be training's and evaluation's alone",
            next_command=f"leave {flag} out, or {instead}",
        )
    if benchmark.data != towards.text:
        yield RequestError(
            f"{name} is trained on {towards.text}",
            where=f"--data={benchmark.data}",
            why="its target is a loss on that text",
            next_command=f"leave --data out, or {instead}",
        )
    changed = [one for one in benchmark.overrides if one in stated and one != RATE]
    if changed:
        yield RequestError(
            f"{changed[0]} is {name}'s own: {stated[changed[0]]}",
            where=f"--set={changed[0]}",
            why="a run with another optimizer, schedule or text is no run of the benchmark, whatever loss it reaches",
            next_command=f"leave it out; the learning rate is yours to choose: --set={RATE}=X",
        )
