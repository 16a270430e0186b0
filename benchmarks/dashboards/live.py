"""The scalars of one run's steps: which tags they have, and what each means.

Times are `perf/...`. Those of a run under a profiler are `profiled/...`, and of one that was slowed on purpose
`slowed/...`, so that no chart draws them beside runs that are comparable; so are the steps of other runs in which jax
recorded or compiled (PGLE). The loss is `train/loss` of all of them: neither changes it.
"""

import functools
import re

from benchmarks.measuring.figures import RECORDED
from benchmarks.measuring.summary import not_comparable
from benchmarks.measuring.utilisation import Mfu, mfu, workload_of
from benchmarks.values import Benchmark, Step, Value

PERF, PROFILED, SLOWED = "perf", "profiled", "slowed"


class StepScalars(Value, frozen=True):
    """What turns the steps of one run into scalars."""

    place: str = PERF
    gpus: int | None = None  # None: not known, and no figure is given of one device
    mfu: list[Mfu] = []  # what a step of one second would reach, against each peak; in a step of two it is half

    def of(self, step: Step) -> dict[str, float]:
        """Tag -> value; what a step does not have has no tag."""
        place = PROFILED if step.excluded_because in RECORDED else self.place
        found = {}
        if step.seconds is not None:
            found[f"{place}/step_seconds"] = step.seconds
            found |= self._rates(place, step, step.seconds)
        if step.loss is not None:
            found["train/loss"] = step.loss
        return found

    def _rates(self, place: str, step: Step, seconds: float) -> dict[str, float]:
        if seconds <= 0:
            return {}
        found = {}
        if step.tokens:
            found[f"{place}/tokens_per_second"] = step.tokens / seconds
            if self.gpus is not None:
                found[f"{place}/tokens_per_second_per_gpu"] = step.tokens / seconds / self.gpus
        return found | {mfu_tag(place, one): one.percent / seconds for one in self.mfu}

    def descriptions(self) -> dict[str, str]:
        """Tag -> what it means, with its source. In every place that a run's steps may have."""
        found = {"train/loss": "as the framework reported it"}
        for place in {self.place, PROFILED}:
            found[f"{place}/step_seconds"] = f"true seconds of the step, all work done{_WHAT[place]}"
            found[f"{place}/tokens_per_second"] = f"the step's tokens over its seconds, of all devices{_WHAT[place]}"
            found[f"{place}/tokens_per_second_per_gpu"] = f"the same over the devices{_WHAT[place]}"
            for one in self.mfu:
                found[mfu_tag(place, one)] = (
                    f"% of {one.peak_tflops:.4g} TFLOP/s {one.precision_peak} a device ({one.peak_source}); "
                    f"FLOPs counted by the convention '{one.counted_by}'{_WHAT[place]}"
                )
        return found


_WHAT = {
    PERF: "",
    PROFILED: "; something else was recorded or compiled meanwhile, so it is compared with nothing",
    SLOWED: "; slowed on purpose (--inject_slowdown), so it is compared with nothing",
}


def step_scalars(benchmark: Benchmark) -> StepScalars:
    return StepScalars(place=place_of(benchmark), gpus=benchmark.gpus, mfu=_mfu_of_one_second(benchmark))


def place_of(benchmark: Benchmark) -> str:
    if benchmark.inject_slowdown and benchmark.profile == "none":
        return SLOWED
    return PROFILED if not_comparable(benchmark) else PERF


def mfu_tag(place: str, one: Mfu) -> str:
    """Such as perf/mfu_percent/recipe_fp8; of a peak that was measured, perf/mfu_percent/recipe_measured_bf16."""
    return f"{place}/mfu_percent/{plain(f'{one.convention} {one.precision_peak}')}"


@functools.lru_cache(maxsize=8192)  # of a hundred thousand runs, most share their words
def plain(text: str) -> str:
    """As part of a tag or of a folder's name: letters, digits and a few signs."""
    return re.sub(r"[^A-Za-z0-9.=+-]+", "_", text).strip("_.") or "_"


def _mfu_of_one_second(benchmark: Benchmark) -> list[Mfu]:
    """By the recipe's convention, against every peak that applies. None of an emulated precision."""
    if benchmark.dtype in benchmark.hardware.emulated:
        return []
    entries = mfu(workload_of(benchmark), 1.0, {}) or []
    return [one for one in entries if one.counted_by == entries[0].counted_by]
