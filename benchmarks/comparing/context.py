"""What all figures of a comparison share: days, order and pairs of the runs, their drifts, and earlier runs. Pure."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from statistics import fmean

from benchmarks.comparing import by_far
from benchmarks.comparing.days import Noise, Timed, days_of, noise_of, started_at
from benchmarks.comparing.figures import FigureKind
from benchmarks.comparing.intervals import FEWEST_RUNS, Level, between_windows
from benchmarks.comparing.runs import Runs
from benchmarks.comparing.turns import in_turns, times_of
from benchmarks.measuring.clipped_mean import FEWEST_PAIRS
from benchmarks.measuring.settling import Judgement
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.values import Window

History = Callable[[], Sequence[FinishedRun]]


class Context:
    """The two sides, and what else is known: their pairs, and the noise of earlier runs."""

    def __init__(self, a: Runs, b: Runs, history: History) -> None:
        self.a, self.b, self.every = a, b, [*a, *b]
        began = [run.began for run in self.every]
        days = days_of(began)
        times = times_of(began, days)
        self.days = (days[: len(a)], days[len(a) :])
        self.times = (times[: len(a)], times[len(a) :])
        self.pairs = _pairs(a, b) if in_turns(self.times) else []  # cells that were run again later are no pairs
        self.notes = [f"{len(self.pairs)} pairs of one sweep: compared run against run"] if self.pairs else []
        self._history = history

    @cached_property
    def _earlier(self) -> list[list[FinishedRun]]:
        """Runs of the sides' own identities that are comparable and not of the sides."""
        named = {run.result.run_id for run in self.every}
        entries = self._history()
        identities = {frozenset(one.identity.items()) for one in entries if one.run_id in named and one.identity}
        usable = [
            one
            for one in entries
            if one.run_id not in named and one.status == "valid" and not (one.not_comparable or one.slowed_by)
        ]
        return [
            [one for one in usable if one.identity == dict(identity)] for identity in sorted(identities, key=sorted)
        ]

    def noise(self, kind: FigureKind, logs_a: Sequence[float], logs_b: Sequence[float]) -> Noise:
        """From earlier runs of the sides' own identities, and from a side that is a set."""
        return noise_of([group for group in self._alike(kind, logs_a, logs_b) if len(group) >= FEWEST_RUNS])

    def far_enough(self, kind: FigureKind, a: Level, b: Level) -> float | None:
        """How large a difference of a speed is enough where the noise is not known; None: no bound is known."""
        devices = {run.benchmark.hardware.kind for run in self.every}
        alike = [[one.log for one in group] for group in self._alike(kind, a.logs, b.logs)]
        windows = between_windows(a, b).half_width if kind.window and len(self.every) == 2 else 0.0
        return by_far.threshold(devices, alike, windows)

    @cached_property
    def moves(self) -> float:
        """By how much drifts that have not ended may still change B against A, as a logarithm.

        What both sides have in common cancels.
        """
        moves = [[still_moves(run.result.window) for run in runs] for runs in (self.a, self.b)]
        return fmean(moves[1]) - fmean(moves[0])

    def _alike(self, kind: FigureKind, logs_a: Sequence[float], logs_b: Sequence[float]) -> list[list[Timed]]:
        groups = []
        for entries in self._earlier:
            values = [(kind.of_history(one), started_at(one.run_id)) for one in entries]
            groups.append([Timed(math.log(value), started) for value, started in values if value and value > 0])
        for logs, runs in ((logs_a, self.a), (logs_b, self.b)):
            groups.append([Timed(log, run.began) for log, run in zip(logs, runs, strict=True)])
        return groups


def still_moves(found: Window | Judgement) -> float:
    """Above 0: the median is below the step time that the run would settle at."""
    off = math.log1p((found.median_off_percent or 0.0) / 100)
    return math.copysign(off, found.drift_percent_per_minute or 0.0)


def _pairs(a: Runs, b: Runs) -> list[tuple[int, int]]:
    """The places of the runs of one repeat; none where the sides are not two cells of one sweep."""
    places = [{run.pair: place for place, run in enumerate(runs) if run.pair} for runs in (a, b)]
    cells = [{(pair.sweep, pair.cell) for pair in found} for found in places]
    sweeps = {sweep for found in cells for sweep, _ in found}
    whole = all(run.pair for run in (*a, *b)) and len(cells[0]) == len(cells[1]) == len(sweeps) == 1
    if not whole or cells[0] == cells[1]:
        return []
    others = {pair.repeat: place for pair, place in places[1].items()}
    found = [(place, others[pair.repeat]) for pair, place in places[0].items() if pair.repeat in others]
    return found if len(found) >= FEWEST_PAIRS else []
