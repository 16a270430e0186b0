"""How often the verdict of a comparison is false on equal sides, and how often it sees a difference of 1%."""

from collections.abc import Callable

from benchmarks.compare.intervals import Interval, noise_of, of_few, of_pairs, of_sets, verdict_of
from benchmarks.verdict import Verdict
from tests.simulation.table import Lines, Random, at_least, at_most, share

PART = "comparison"
NOISE = 0.003  # of run medians, as logarithms
MOST_FALSE = 0.05
EFFECT, LEAST_SEEN = 0.01, 0.95


def lines(draws: int, random: Random) -> Lines:
    for name, draw in EQUAL_SIDES.items():
        for margin in (0.0, 1.0):
            found = [verdict_of(draw(random), margin)[0] for _ in range(draws)]
            false = share([verdict in (Verdict.BETTER, Verdict.WORSE) for verdict in found])
            yield at_most(PART, f"{name}, margin {margin:g}%: equal sides called better or worse", false, MOST_FALSE)
    slower = [of_sets(_logs(random, 10), [one + EFFECT for one in _logs(random, 10)]) for _ in range(draws)]
    seen = share([verdict_of(one, 0.0)[0] == Verdict.WORSE for one in slower])
    yield at_least(PART, "10 and 10 runs, B is 1% slower: called worse", seen, LEAST_SEEN)


def _logs(random: Random, runs: int, noise: float = NOISE) -> list[float]:
    return [float(one) for one in random.normal(0.0, noise, runs)]


def _few(random: Random, earlier: int) -> Interval:
    """One run each, whose windows are a tenth as uncertain as runs differ."""
    one, other = (Interval(centre, centre - NOISE / 10, centre + NOISE / 10) for centre in _logs(random, 2))
    return of_few(one, other, (1, 1), noise_of([_logs(random, earlier)]))


EQUAL_SIDES: dict[str, Callable[[Random], Interval]] = {
    "3 and 3 runs": lambda random: of_sets(_logs(random, 3), _logs(random, 3)),
    "10 and 10 runs": lambda random: of_sets(_logs(random, 10), _logs(random, 10)),
    "3 and 10 runs, the 10 noisier": lambda random: of_sets(_logs(random, 3), _logs(random, 10, 3 * NOISE)),
    "3 pairs": lambda random: of_pairs(_logs(random, 3), _logs(random, 3)),
    "6 pairs": lambda random: of_pairs(_logs(random, 6), _logs(random, 6)),
    "1 and 1 run, 3 earlier": lambda random: _few(random, 3),
    "1 and 1 run, 20 earlier": lambda random: _few(random, 20),
}
