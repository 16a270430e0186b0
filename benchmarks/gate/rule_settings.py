"""What the gate's rule goes by: every number that decides, with where it comes from. Data alone."""

import hashlib
import math
from collections.abc import Mapping

import msgspec

from benchmarks.values import Value


class Rule(Value, frozen=True):
    """The settings of one rule. Shares, not percent: 0.005 is half a percent."""

    name: str = "G3"
    baseline_nights: int = 20
    fewest_baseline_nights: int = 10
    gap_nights: int = 3
    since_nights: int = 10  # level.py knows the mean of no more nights than these
    calm_nights: int = 5
    clip_deviations: float = 2.5
    outlier_deviations: float = 5.0
    most_outliers: float = 0.15
    most_clipped: float = 0.25
    least_noise: float = 0.001
    relevant: float = 0.005
    screen_p: float = 0.05
    screen_recent_p: float = 0.025
    confirmations: int = 3
    confirm_p: float = 0.005
    same_within: float = 0.01
    confidence: float = 0.90
    power: float = 0.80

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

_MEASURED = "1,194 public MLPerf v5.1 result logs"
SOURCES: Mapping[str, str] = {
    "name": "the third rule that was simulated",
    "baseline_nights": "a month of working days: enough for a spread, and it follows a machine that ages",
    "fewest_baseline_nights": "a t test on 5 nights finds nothing below one and a half times what one on 10 finds",
    "gap_nights": "tonight and the two nights before are judged, so they are no baseline",
    "since_nights": "more nights say little more: the baseline's own error stays",
    "calm_nights": "an alarm is over when so many nights in a row, none of them called one, lie at the old level",
    "clip_deviations": f"some runs are outliers ({_MEASURED}); beyond so many MADs they count no more",
    "outlier_deviations": "further off, a night is left out: finds 2% at 0.5% noise in 80%, not 70% of first nights",
    "most_outliers": "3 of 20, 1 of 10: where more are so far off, it is how the machine is, and all count",
    "most_clipped": "5 of 20, 2 of 10 beyond the clip: where more are, all count as well, as far off as they are",
    "least_noise": f"run medians of one day differ by 0.1% at the middle cluster ({_MEASURED})",
    "relevant": "half a percent: below, nobody acts on one night; lasting small shifts are the weekly sweep's",
    "screen_p": "a false suspicion costs re-runs alone: less than half a run a cell and night (docs/gate.md)",
    "screen_recent_p": "the same for the median of 3 nights, halved as it is the second look",
    "confirmations": "the median of 3 bears one outlier",
    "confirm_p": "with the screen less than 0.1% false alarms a night and cell (simulated: docs/gate.md)",
    "same_within": "1% either way: what a reader of a nightly report calls the same",
    "confidence": "of intervals: two one-sided tests at 5%, as an equivalence test has it (Schuirmann 1987)",
    "power": "of what is called detectable: seen in 4 of 5 cases",
}
