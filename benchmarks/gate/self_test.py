"""The gate tries itself: false alarms and power of its rule on synthetic nights, with bounds and tables. Pure.

`launch/nightly.py --self_test` prints the tables; docs/make_gate_tables.py writes them into docs/measurements; tests
assert the bounds.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from benchmarks.gate.rule import G3, Rule
from benchmarks.gate.simulated_rates import RATES, SEEN
from benchmarks.gate.simulation import BEFORE, HISTORY, SINCE, Case, Watched, World, sweep_finds, watch
from benchmarks.text import markdown_table
from benchmarks.values import Value

SEED = 20261101
RUNS = 500
EFFECTS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05)
NOISES = (0.001, 0.002, 0.005, 0.01, 0.02)
NIGHTS = (1, 3, 10)
SUITE_CELLS = 20
USUAL = World(0.005)
SAME = "no change"
FEWEST_RUNS = 200  # with fewer, the strictest bound (0.5%) would not bear even one
CHANCE = 1e-3  # a bound counts as broken where chance alone would break it more rarely than this

At = tuple[float, float]  # noise and effect
Shown = tuple[str, float]  # what the nights show, and how much of it
Task = tuple[str, Any, Callable[[], Any]]


class Count(Value, frozen=True):
    """So many of so many."""

    count: int
    of: int

    @property
    def share(self) -> float:
        return self.count / self.of if self.of else math.nan

    def text(self, digits: int = 0) -> str:
        return f"{100 * self.share:.{digits}f}%" if self.of else "none"


class Seen(NamedTuple):
    """What the rule said of one case, in each of its histories."""

    histories: list[Watched]

    def within(self, nights: int, verdict: str) -> Count:
        """Called so at least once within so many nights."""
        return self._count(verdict in one.verdicts[:nights] for one in self.histories)

    def at(self, night: int, verdict: str) -> Count:
        """Called so this very night."""
        return self._count(one.verdicts[night - 1 : night] == [verdict] for one in self.histories)

    def open(self, night: int) -> Count:
        """With an alarm of this night or of one before."""
        return self._count(one.open[night - 1] for one in self.histories)

    def after(self, night: int, verdict: str) -> Count:
        """Called so at least once after this night."""
        return self._count(verdict in one.verdicts[night:] for one in self.histories)

    def _count(self, found: Iterable[bool]) -> Count:
        return Count(count=sum(found), of=len(self.histories))

    @property
    def alarms(self) -> Count:
        """Regressions of all nights looked at."""
        found = [verdict == "regression" for one in self.histories for verdict in one.verdicts]
        return Count(count=sum(found), of=len(found))

    @property
    def runs(self) -> float:
        """A night, re-runs included."""
        return sum(one.runs for one in self.histories) / self.alarms.of


class SelfTest(Value, frozen=True):
    """All that one self test found."""

    rule: Rule
    seed: int
    runs: int  # histories a row
    rows: dict[At, Seen]
    worlds: dict[tuple[str, bool], tuple[Count, Count]]  # by world and control: false alarms; 2% found in 3 nights
    rates: dict[Shown, tuple[Count, ...]]  # false alarms by what a site's nights show, and by SEEN
    weak: dict[str, Count]
    sweeps: dict[At, Count]
    courses: dict[At, Seen]  # a lasting change that nobody accepts, and that is mended after LASTS nights

    @property
    def stated(self) -> dict[str, dict[float, tuple[float, ...]]]:
        """As in simulated_rates.py."""
        by_kind: dict[str, dict[float, tuple[float, ...]]] = defaultdict(dict)
        for (what, value), counts in self.rates.items():
            by_kind[what][value] = tuple(count.share for count in counts)
        return dict(by_kind)


WORLDS: dict[str, World] = {
    "as in the tables above": USUAL,
    "Student's t with 3 degrees of freedom": USUAL._replace(shape="t3"),
    "noise to one side (exponential)": USUAL._replace(shape="skewed"),
    "half of the variance is the night's": USUAL._replace(of_night=0.5, of_nodes=0.2),
    "the same, autocorrelated nights (0.8)": USUAL._replace(of_night=0.5, of_nodes=0.2, night_memory=0.8),
    "one machine: re-runs on the same nodes": USUAL._replace(fresh_nodes=False),
    "the machine drifts by +1% a month": USUAL._replace(trend=0.01),
    "3% of nights are slow by 2%": USUAL._replace(slow_nights=0.03),
}
WORLD_EFFECT, WORLD_NIGHTS = 0.02, 3
# What reports state false alarms by: worlds by what their nights show (simulated_rates.py).
MEMORY = 0.8  # of the night's part; its share of the variance makes the autocorrelation of nights
RATE_NIGHTS = 40
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
DRIFTS = (0.0, 1.0, 1.5, 2.0, 3.0, 4.0)
SHOWN: dict[Shown, World] = {
    **{("share", share): USUAL._replace(of_night=share, of_nodes=0.0) for share in SHARES},
    **{("skewed", share): USUAL._replace(of_night=share, of_nodes=0.0, shape="skewed") for share in SHARES},
    **{
        ("memory", lag): USUAL._replace(of_night=lag / MEMORY, of_nodes=0.2, night_memory=MEMORY)
        for lag in (0.0, 0.2, 0.4, 0.6)
    },
    **{("drift", drift): USUAL._replace(trend=drift * USUAL.noise) for drift in DRIFTS},
    ("slow nights", 0.03): USUAL._replace(slow_nights=0.03),
}
_SHOWN_AS = {
    "share": "re-runs share {} of the variance with the first run",
    "skewed": "the same, with skewed (exponential) noise: {}",
    "memory": "nights have a lag-1 autocorrelation of {}",
    "drift": "the machine drifts by {} times the noise a month",
    "slow nights": "{} of nights are slow by 2%",
}
_IN_PERCENT = ("share", "skewed", "slow nights")
SLOW_NODES = "lands on nodes"
_WEAK: dict[str, Case] = {
    **{
        f"{words} {SLOW_NODES} that are 2% slow, {100 * noise:g}% noise": Case(
            World(noise, outliers=share, outlier_from=0.02, outlier_to=0.0201)
        )
        for noise in (0.001, 0.002, 0.005)
        for words, share in (("1 run in 5", 0.2), ("1 run in 3", 1 / 3))
    },
    "a drift up and down by 1% in 60 nights": Case(USUAL._replace(drift=0.005)),
    "a history of 10 nights": Case(USUAL, history=10, nights=3),
}
_SWEEPS = ((0.002, 0.0), (0.005, 0.0), (0.002, 0.005), (0.002, 0.01), (0.005, 0.01), (0.01, 0.02))
_COURSES = ((0.002, 0.01), (0.005, 0.01), (0.005, 0.02), (0.01, 0.03), (0.01, 0.05))
LASTS, COURSE_NIGHTS, MENDED_NIGHTS = 60, (1, 5, 20, 60), (1, 3, 10)
SWEEP_HISTORIES = 5  # of which one is swept: a sweep costs as much as watching them


def self_test(
    rule: Rule = G3, seed: int = SEED, runs: int = RUNS, tracked: Callable[[Sequence[Task]], Iterable[Task]] = iter
) -> SelfTest:
    """Everything that the tables hold; the same numbers for the same rule, seed and number of runs.

    `tracked` hands the tasks on, and may show how far they are.
    """
    rows = {(noise, effect): Case(World(noise), effect) for noise in NOISES for effect in EFFECTS}
    of = (rule, seed, runs)
    tasks: list[Task] = [
        *(("rows", at, partial(row_of, case, *of)) for at, case in rows.items()),
        *(
            ("worlds", (what, on), partial(world_of, world._replace(control=on), *of))
            for what, world in WORLDS.items()
            for on in (False, True)
        ),
        *(("rates", at, partial(rates_of, world, *of)) for at, world in SHOWN.items()),
        *(("weak", what, partial(alarms_of, case, *of)) for what, case in _WEAK.items()),
        *(("sweeps", at, partial(_sweep, *at, seed, runs)) for at in _SWEEPS),
        *(("courses", at, partial(course_of, *at, rule, seed, runs)) for at in _COURSES),
    ]
    found: dict[str, dict[Any, Any]] = defaultdict(dict)
    for part, at, work in tracked(tasks):
        found[part][at] = work()
    return SelfTest(rule=rule, seed=seed, runs=runs, **found)


def row_of(case: Case, rule: Rule, seed: int, runs: int) -> Seen:
    return Seen(watch(case, rule, seed, runs))


def alarms_of(case: Case, rule: Rule, seed: int, runs: int) -> Count:
    return row_of(case, rule, seed, runs).alarms


def world_of(world: World, rule: Rule, seed: int, runs: int) -> tuple[Count, Count]:
    """False alarms where nothing changes, and how often a change is found in the first nights."""
    changed = row_of(Case(world, WORLD_EFFECT, nights=WORLD_NIGHTS), rule, seed, runs)
    return alarms_of(Case(world), rule, seed, runs), changed.within(WORLD_NIGHTS, "regression")


def rates_of(world: World, rule: Rule, seed: int, runs: int) -> tuple[Count, ...]:
    """False alarms by SEEN."""
    return tuple(
        alarms_of(Case(world._replace(control=seen > 0, control_sees=seen), nights=RATE_NIGHTS), rule, seed, runs)
        for seen in SEEN
    )


def course_of(noise: float, effect: float, rule: Rule, seed: int, runs: int) -> Seen:
    return row_of(Case(World(noise), effect, nights=LASTS + MENDED_NIGHTS[-1], lasts=LASTS), rule, seed, runs)


def _sweep(noise: float, effect: float, seed: int, runs: int) -> Count:
    histories = max(runs // SWEEP_HISTORIES, 1)
    return Count(count=sweep_finds(World(noise), effect, seed, histories), of=histories)


# --- the bounds -----------------------------------------------------------------------------------


class Bound(NamedTuple):
    """What must hold, and what was found."""

    what: str
    found: Count
    least: float | None = None
    most: float | None = None

    @property
    def broken(self) -> bool:
        """Further than chance takes it: with few runs, a rule that keeps a bound is often a little beyond it."""
        from scipy.special import bdtr, bdtrc

        count, of = self.found.count, self.found.of
        if self.least is not None:
            return self.found.share < self.least and float(bdtr(count, of, self.least)) < CHANCE
        most = self.most or 0.0
        return self.found.share > most and float(bdtrc(count - 1, of, most)) < CHANCE

    def text(self) -> str:
        limit = (
            f"at least {_percent(self.least)}" if self.least is not None else f"at most {_percent(self.most or 0.0)}"
        )
        return f"{self.what}: {self.found.text(1)} of {self.found.of}, not {limit}"


def bounds(found: SelfTest) -> list[Bound]:
    """False alarms are few, what can be seen is seen, and nothing is claimed that isn't known."""
    row, course = found.rows, found.courses[0.005, 0.02]
    quiet = [
        Bound(
            f"false regressions within 3 nights at {_percent(noise)} noise",
            row[noise, 0.0].within(3, "regression"),
            most=0.015,
        )
        for noise in NOISES
    ]
    nodes = [
        Bound(f"false regressions a night where {what}", count, most=0.005)
        for what, count in found.weak.items()
        if SLOW_NODES in what
    ]
    controlled = [
        bound
        for (what, on), (alarms, power) in found.worlds.items()
        if on
        for bound in (
            Bound(f"false regressions a night with a control where {what}", alarms, most=0.003),
            Bound(f"2% is found within 3 nights with a control where {what}", power, least=0.90),
        )
    ]
    stated = [
        # An alarm goes on for nights, so a history counts as one case, not as so many nights.
        Bound(
            f"false regressions a night where {_shown(what, value)}, {_seen(seen)}",
            Count(count=round(count.count / RATE_NIGHTS), of=count.of // RATE_NIGHTS),
            most=most,
        )
        for (what, value), counts in found.rates.items()
        for seen, count, most in zip(SEEN, counts, RATES[what][value], strict=True)
    ]
    return [
        *quiet,
        *nodes,
        *controlled,
        *stated,
        Bound("1% at 0.2% noise is found the first night", row[0.002, 0.01].within(1, "regression"), least=0.88),
        Bound("2% at 0.5% noise is found within 3 nights", row[0.005, 0.02].within(3, "regression"), least=0.89),
        Bound("3% at 0.5% noise is found the first night", row[0.005, 0.03].within(1, "regression"), least=0.96),
        Bound("nothing is claimed at 1% noise on night 3", row[0.01, 0.0].at(3, "inconclusive"), least=0.95),
        Bound('"no change" is said of a change of 2%', row[0.005, 0.02].at(1, "no change"), most=0.02),
        Bound("2% at 0.5% noise still has its alarm on night 60", course.open(60), least=0.95),
        Bound("2% at 0.5% noise is still said on night 60", course.at(60, "regression"), least=0.89),
        Bound("3% at 1% noise still has its alarm on night 60", found.courses[0.01, 0.03].open(60), least=0.75),
        Bound("2% at 0.5% noise, mended, is green on the third night", course.at(LASTS + 3, "regression"), most=0.02),
        Bound("2% at 0.5% noise, mended, is called an improvement", course.after(LASTS, "improvement"), most=0.05),
    ]


def broken_bounds(found: SelfTest) -> list[str]:
    """Each broken bound in one line; none: the gate is as good as it says."""
    return [bound.text() for bound in bounds(found) if bound.broken]


# --- the tables, in Markdown ----------------------------------------------------------------------


def tables(found: SelfTest) -> str:
    parts = [settings_line(found.rule, found.seed, found.runs), _power(found), _said(found), _worlds(found)]
    parts += [rates_table(found.stated), _after(found)]
    weak = [[what, count.text(2)] for what, count in found.weak.items()]
    what = f"What raises false alarms, at {_percent(USUAL.noise)} noise where no other is said:"
    parts.append(_table(what, ["where", "false alarms a night"], weak))
    sweeps = [
        [_percent(noise), _percent(effect) if effect else "none", count.text()]
        for (noise, effect), count in found.sweeps.items()
    ]
    histories = max(found.runs // SWEEP_HISTORIES, 1)
    what = (
        f"The weekly sweep, {SINCE} nights after a lasting change ({BEFORE} before it; {histories} histories a row):"
    )
    parts.append(_table(what, ["noise", "change", "told"], sweeps))
    broken = [f"- {text}" for text in broken_bounds(found)]
    lead = "BROKEN BOUNDS: the gate is not as good as it says\n"
    parts.append("\n".join([lead, *broken]) if broken else f"All {len(bounds(found))} bounds hold.")
    return "\n\n".join(parts) + "\n"


def settings_line(rule: Rule, seed: int, runs: int) -> str:
    """What the tables were made with; other settings make other tables."""
    return (
        f"Rule {rule.name}, settings {rule.digest()}, seed {seed}, {runs} histories a row: {HISTORY} nights before "
        f"the change and {NIGHTS[-1]} after it, of which {100 * USUAL.outliers:g}% of the runs are outliers."
    )


def _power(found: SelfTest) -> str:
    """Each effect at each noise."""
    heading = ["noise", *(f"{_percent(effect)} slower" for effect in EFFECTS[1:])]
    rows = [[_percent(noise), *(found_text(found.rows[noise, effect]) for effect in EFFECTS[1:])] for noise in NOISES]
    nights = " / ".join(map(str, NIGHTS))
    return _table(f"Called a regression within {nights} nights of the change:", heading, rows)


def _said(found: SelfTest) -> str:
    """What is said where there is nothing, and of little."""
    heading = [
        "noise", "false alarms a night", f"of {SUITE_CELLS} cells, one in", 'said "no change"',
        "the same of 1% slower", "once within 10 nights of it", "runs a night",
    ]  # fmt: skip
    rows = []
    for noise in NOISES:
        quiet, slower = found.rows[noise, 0.0], found.rows[noise, 0.01]
        in_suite = 1 - (1 - quiet.alarms.share) ** SUITE_CELLS
        one_in = f"{1 / in_suite:,.0f} nights" if in_suite else f"none in {quiet.alarms.of:,} nights of a cell"
        same = [one.text() for one in (quiet.at(3, SAME), slower.at(1, SAME), slower.within(10, SAME))]
        rows.append([_percent(noise), quiet.alarms.text(2), one_in, *same, f"{quiet.runs:.2f}"])
    every = [found.rows[noise, 0.0].alarms for noise in NOISES]
    total = Count(count=sum(one.count for one in every), of=sum(one.of for one in every))
    what = (
        "Where nothing changed, by cell (*said* on the third night). Of what is 1% slower, as much as the margin, it "
        "should be said rarely: on the first night, and at least once within 10 nights:"
    )
    of_all = f"False alarms over all of these: {total.text(2)} a cell and night, each night of an alarm counted."
    return f"{_table(what, heading, rows)}\n\n{of_all}"


def _worlds(found: SelfTest) -> str:
    heading = ["at 0.5% noise", "false alarms a night", "with a control", "2% found in 3 nights", "with a control"]
    rows = []
    for what in WORLDS:
        (alarms, power), (controlled, power_controlled) = (found.worlds[what, on] for on in (False, True))
        rows.append([what, alarms.text(2), controlled.text(2), power.text(), power_controlled.text()])
    return _table("Other worlds, without and with a control on the nodes of each run:", heading, rows)


def rates_table(rates: Mapping[str, Mapping[float, Sequence[float]]]) -> str:
    heading = ["false alarms a night where", *map(_seen, SEEN)]
    rows = [
        [
            _shown(what, *found),
            *(_each(f"{100 * rate:.2f}%" for rate in seen) for seen in zip(*found.values(), strict=True)),
        ]
        for what, found in rates.items()
    ]
    return _table("What reports state false alarms by:", heading, rows)


def _shown(what: str, *values: float) -> str:
    return _SHOWN_AS[what].format(_each(_percent(one) if what in _IN_PERCENT else f"{one:g}" for one in values))


def _seen(seen: float) -> str:
    return f"a control sees {seen:.0%}" if seen else "no control"


def _after(found: SelfTest) -> str:
    nights, after = " / ".join(map(str, COURSE_NIGHTS)), " / ".join(map(str, MENDED_NIGHTS))
    heading = [
        "noise", "change", f"said on night {nights}", "alarm open on these", f"said on night {after} after mending",
        "mending called an improvement",
    ]  # fmt: skip
    rows = [
        [
            *map(_percent, at),
            _each(one.at(night, "regression").text() for night in COURSE_NIGHTS),
            _each(one.open(night).text() for night in COURSE_NIGHTS),
            _each(one.at(LASTS + night, "regression").text() for night in MENDED_NIGHTS),
            one.after(LASTS, "improvement").text(),
        ]
        for at, one in found.courses.items()
    ]
    what = f"A lasting regression that nobody accepts, and that is mended after {LASTS} nights:"
    return _table(what, heading, rows)


def found_text(seen: Seen) -> str:
    return _each(seen.within(night, "regression").text() for night in NIGHTS)


def _each(texts: Iterable[str]) -> str:
    return " / ".join(texts)


def _table(what: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"{what}\n\n{markdown_table(heading, rows)}"


def _percent(share: float) -> str:
    return f"{100 * share:g}%"
