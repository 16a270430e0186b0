"""What the gate's rule is held against: simpler rules on the same synthetic nights, and what each gets wrong. Pure.

Negative controls: a simulation in which a bad rule looks good would prove nothing.
"""

import numpy as np

from benchmarks.gate.nights import PastNight, divide
from benchmarks.gate.rule import Decision, Rule, decide
from benchmarks.gate.simulation import Drawn, World, draw, generator
from benchmarks.measuring import statistics
from tests.benchmarks import made_steps
from tests.benchmarks.made_steps import Array, Random

STEPS = 50
BASELINE = 20
ONE_RUN_LIMIT = 0.05


def five_percent_rule(rule: Rule, world: World, effect: float, seed: int, histories: int) -> int:
    """How often one run is more than 5% above the mean of the nights before it."""
    drawn = _first_night(rule, world, effect, seed, histories)
    ratio = np.exp(drawn.runs[:, -1]) / np.exp(drawn.runs[:, :-1]).mean(1)
    return int((ratio > 1 + ONE_RUN_LIMIT).sum())


def without_confirmation(rule: Rule, world: World, effect: float, seed: int, histories: int) -> int:
    """How often the screen alone calls tonight a regression."""
    drawn = _first_night(rule, world, effect, seed, histories)
    found = [decided(np.exp(runs).tolist(), None, rule) for runs in drawn.runs]
    return sum(one.outcome == "suspect" and one.test is not None and one.test.distance > 0 for one in found)


def decided(runs: list[float], reruns: list[float] | None, rule: Rule) -> Decision:
    parts = divide([PastNight(value=value) for value in runs], rule)
    baseline, recent, since = ([runs[n] for n in part] for part in parts[:3])
    return decide(baseline, recent, "lower", reruns, since, rule)


def steps_as_independent(rule: Rule, world: World, effect: float, seed: int, histories: int) -> int:
    """How often a t test of all steps, each counted as if it were a night, calls tonight a regression."""
    drawn = _first_night(rule, world, effect, seed, histories)
    seconds = draw_steps(drawn.runs, generator(seed, "steps"))
    return _pooled_alarms(rule, np.log(seconds))


def gate_on_steps(rule: Rule, world: World, effect: float, seed: int, histories: int) -> int:
    """How often the gate's own rule does, on the medians of the very same steps, in one night."""
    drawn = _first_night(rule, world, effect, seed, histories, rule.confirmations)
    random = generator(seed, "steps")
    runs = np.exp(medians(draw_steps(drawn.runs, random))).tolist()
    reruns = np.exp(medians(draw_steps(drawn.reruns[:, -1], random))).tolist()
    both = zip(runs, reruns, strict=True)
    return sum(decided(values, again, rule).outcome == "regression" for values, again in both)


def _first_night(rule: Rule, world: World, effect: float, seed: int, histories: int, reruns: int = 0) -> Drawn:
    """A full baseline, its gap, and the first night of a change."""
    nights = BASELINE + rule.gap_nights
    drawn = draw(world, generator(seed, world, "control", nights, reruns), histories, nights, reruns)
    drawn.runs[:, -1] += np.log1p(effect)
    drawn.reruns[:, -1] += np.log1p(effect)
    return drawn


def _pooled_alarms(rule: Rule, logs: Array) -> int:
    """Tonight's values (histories x nights x values) against those of all nights before, by the rule's own limits."""
    from scipy.special import stdtr

    tonight, before = logs[:, -1], logs[:, :-1].reshape(len(logs), -1)
    distance = tonight.mean(1) - before.mean(1)
    error = before.std(1, ddof=1) * (1 / tonight.shape[1] + 1 / before.shape[1]) ** 0.5
    p = stdtr(before.shape[1] - 1, -distance / error)
    return int(((p < rule.confirm_p) & (distance >= rule.relevant_log)).sum())


# --- the step level -------------------------------------------------------------------------------


def draw_steps(levels: Array, random: Random) -> Array:
    """Seconds of the steps of a run at each of the levels (logarithms), the first ones 1% faster."""
    shape = (*levels.shape, STEPS)
    logs = made_steps.two_scales(random, shape)
    logs -= 0.01 * np.exp(-np.arange(STEPS) / 8)
    logs += made_steps.spikes(random, shape)
    seconds: Array = np.exp(logs + levels[..., None])
    return seconds


def medians(seconds: Array) -> Array:
    """Logarithms of the runs' medians, each by the very function that makes a result's."""
    runs = seconds.reshape(-1, seconds.shape[-1]).tolist()
    found: Array = np.log([statistics.median(run) or np.nan for run in runs]).reshape(seconds.shape[:-1])
    return found
