"""What the gate's rule goes by: every number that decides, with where it comes from. Data alone.

"Measured" is of 1,194 public MLPerf v5.1 result logs, "simulated" is docs/gate.md.
"""

import hashlib
import math

import msgspec

from benchmarks.values import Value


class Rule(Value, frozen=True):
    """The settings of one rule. Shares, not percent: 0.005 is half a percent."""

    name: str = "G3"  # the third rule that was simulated
    baseline_nights: int = 20  # a month of working days: enough for a spread, and it follows a machine that ages
    fewest_baseline_nights: int = 10  # a t test on 5 finds nothing below one and a half times what one on 10 finds
    gap_nights: int = 3  # tonight and the two nights before are judged, so they are no baseline
    since_nights: int = 10  # more say little more: the baseline's own error stays; level.py knows no mean of more
    calm_nights: int = 5  # an alarm is over when so many in a row, none of them called one, lie at the old level
    clip_deviations: float = 2.5  # some runs are outliers (measured); beyond so many MADs they count no more
    outlier_deviations: float = 5.0  # further off, one is left out: finds 2% at 0.5% noise in 80%, not 70% of nights
    most_outliers: float = (
        0.15  # 3 of 20, 1 of 10: where more are so far off, it is how the machine is, and all count
    )
    most_clipped: float = 0.25  # 5 of 20, 2 of 10: where more are beyond the clip, all count as far off as they are
    least_noise: float = 0.001  # run medians of one day differ by 0.1% at the middle cluster (measured)
    relevant: float = 0.005  # below, nobody acts on one night; lasting small shifts are the weekly sweep's
    screen_p: float = 0.05  # a false suspicion costs re-runs alone: less than half a run a cell and night (simulated)
    screen_recent_p: float = 0.025  # the same for the median of 3 nights, halved as it is the second look
    confirmations: int = 3  # the median of 3 bears one outlier
    confirm_p: float = 0.005  # with the screen less than 0.1% false alarms a night and cell (simulated)
    # Of the difference to the control: at 0.05 at most 0.2% false alarms a night in every simulated world, and 1 to 3
    # points less power.
    control_p: float = 0.05
    same_within: float = 0.01  # either way: what a reader of a nightly report calls the same
    confidence: float = (
        0.90  # of intervals: two one-sided tests at 5%, as an equivalence test has it (Schuirmann 1987)
    )
    power: float = 0.80  # of what is called detectable: seen in 4 of 5 cases

    @property
    def relevant_log(self) -> float:
        return math.log1p(self.relevant)

    @property
    def same_log(self) -> float:
        return math.log1p(self.same_within)

    def digest(self) -> str:
        """Of all settings: a table that was made with others can be told."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:12]


G3 = Rule()
