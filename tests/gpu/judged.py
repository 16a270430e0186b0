"""Judge the measurements of `make gpu`. Pure: tested without a GPU."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import statistics
from benchmarks.text import bytes_text, seconds_text

# Percent of the datasheet's dense peak. Published runs of LLMs on these GPUs lie between 25 and 60 in bf16 and less
# in fp8; no matmul exceeds some 80. A clock, a count or a peak that is wrong is wrong by a factor of 2 or more.
SANE_MFU = {"bf16": (10.0, 80.0), "fp8": (5.0, 80.0)}
FALLS_BY = 0.01  # the last quarter's mean loss below the first's: one batch is repeated, and is soon known by heart
TRACE_APART = 0.05  # the trace's sum and our clock's step
CLOCK_COSTS = 1.01  # the lower end of the ratio's interval is at most this
CLOCK_BLURRED = 0.1  # a wider interval is inconclusive
PEAK_SHARE = (0.4, 1.05)  # of the datasheet's, what the best matmul of an idle GPU reaches
PEAK_SPREAD = 0.2
MEMORY_APART = 0.1  # the compiled program's peak and the device's memory; CUDA's own context is some 0.5 GB
# Of result.json's telemetry.gpu. Errors are not among them: a consumer's GPU has no ECC.
SAMPLED = (
    "energy_joules", "joules_per_token", "power_watts_mean", "power_limit_watts", "sm_clock_mhz_median", "throttled",
    "temperature_c_max", "memory_bytes_max",
)  # fmt: skip
TELEMETRY_WORDS = {
    "energy_joules": "{:,.0f} J",
    "joules_per_token": "{:.3g} J a token",
    "power_watts_mean": "{:.0f} W a GPU",
    "sm_clock_mhz_median": "SM clock {:.0f} MHz",
    "temperature_c_max": "at most {} C",
}
RATIO = re.compile(r"ratio (?P<mean>[0-9.]+), 95% interval (?P<low>[0-9.]+) to (?P<high>[0-9.]+)")


class JudgedCheck(NamedTuple):
    figures: str  # with their units
    problems: list[str] = []  # empty: it holds


# --- a run --------------------------------------------------------------------------------------


def trained(result: Mapping[str, Any], losses: Sequence[float | None], *, sane_mfu: bool = True) -> JudgedCheck:
    """A run is valid, its MFU can be, and it learns."""
    seconds, rate = result["seconds_per_step"]["median"], result["tokens_per_second_per_gpu"]
    known = bool(seconds and rate)
    speed = f"{seconds_text(seconds)} a step, {rate:,.0f} tokens/s/GPU" if known else "no step time"
    utilisation, loss = mfu(result, sane=sane_mfu), loss_falls(losses)
    return JudgedCheck(
        ", ".join([speed, utilisation.figures, loss.figures]),
        [*invalid(result), *utilisation.problems, *loss.problems],
    )


def invalid(result: Mapping[str, Any]) -> list[str]:
    return [] if result["status"] == "valid" else [f"the run is {result['status']}: {'; '.join(result['reasons'])}"]


def mfu(result: Mapping[str, Any], *, sane: bool = True) -> JudgedCheck:
    """Judge the MFU of the run's own precision, by the datasheet's peak or the measured one."""
    dtype = result["benchmark"]["dtype"]
    own = [one for one in result["mfu"] or [] if one["precision_peak"] == dtype]
    if not own:
        why = result["null_because"].get("mfu", f"no peak of {dtype}")
        return JudgedCheck("MFU not known", [f"MFU is not known: {why}"] if sane else [])
    first = own[0]
    figures = f"MFU {first['percent']:.1f}% ({first['convention']}, of {first['peak_tflops']:.4g} TFLOP/s {dtype})"
    low, high = SANE_MFU.get(dtype, (0.0, 100.0))
    if not sane or low <= first["percent"] <= high:
        return JudgedCheck(figures)
    return JudgedCheck(figures, [f"an MFU of {first['percent']:.1f}% is not between {low:g}% and {high:g}%"])


def loss_falls(losses: Sequence[float | None]) -> JudgedCheck:
    known = [loss for loss in losses if loss is not None]
    if len(known) < 8 or not all(math.isfinite(loss) for loss in known):
        return JudgedCheck("no loss curve", [f"of {len(losses)} steps, {len(known)} have a loss; all must be finite"])
    quarter = len(known) // 4
    begin, end = statistics.mean(known[:quarter]), statistics.mean(known[-quarter:])
    assert begin is not None
    assert end is not None
    figures = f"loss {begin:.3f} to {end:.3f} (means of {quarter} steps)"
    return JudgedCheck(figures, [] if end < begin * (1 - FALLS_BY) else ["the loss does not fall"])


def telemetry_known(result: Mapping[str, Any]) -> JudgedCheck:
    gpu = (result["telemetry"] or {}).get("gpu")
    if gpu is None:
        nulls = (result["telemetry"] or result).get("null_because", {})
        return JudgedCheck("no telemetry of GPUs", [str(nulls.get("gpu") or nulls.get("telemetry") or "it is null")])
    problems = [f"{name} is null: {gpu['null_because'].get(name)}" for name in SAMPLED if gpu[name] is None]
    if gpu["gpus"] != result["benchmark"]["gpus"]:
        problems.append(f"{gpu['gpus']} GPUs were sampled, the run used {result['benchmark']['gpus']}")
    power, limit = gpu["power_watts_mean"], gpu["power_limit_watts"]
    if power is not None and limit is not None and not 0 < power <= 1.1 * limit:
        problems.append(f"a mean power of {power:.0f} W a GPU, the limit is {limit:.0f} W")
    clock, highest = gpu["sm_clock_mhz_median"], gpu["sm_clock_mhz_highest"]
    if clock is not None and highest is not None and not 0 < clock <= highest:
        problems.append(f"a median SM clock of {clock:.0f} MHz, the highest is {highest} MHz")
    words = [text.format(gpu[name]) for name, text in TELEMETRY_WORDS.items() if gpu[name] is not None]
    memory = gpu["memory_bytes_max"]
    words += [f"{bytes_text(memory)} of memory"] if memory is not None else []
    held = [f"{reason} {share:.0%}" for reason, share in (gpu["throttled"] or {}).items() if share]
    return JudgedCheck(", ".join([*words, f"throttled: {', '.join(held) or 'never'}"]), problems)


def memory_as_compiled(compiled: Mapping[str, Any], result: Mapping[str, Any]) -> JudgedCheck:
    """The peak of the program that plan.py compiled, over what NVML saw in use on the fullest GPU."""
    gpu = (result["telemetry"] or {}).get("gpu") or {}
    peak, measured = compiled["variants"][0]["compiled"]["peak_bytes"], gpu.get("memory_bytes_max")
    if not measured:
        return JudgedCheck(f"{bytes_text(peak)} compiled", ["the memory of the run was not measured"])
    ratio = peak / measured
    figures = f"{bytes_text(peak)} compiled, {bytes_text(measured)} measured: ratio {ratio:.3f}"
    apart = [] if abs(ratio - 1) <= MEMORY_APART else [f"{ratio - 1:+.0%} apart, {MEMORY_APART:.0%} are allowed"]
    return JudgedCheck(figures, [*apart, *invalid(result)])


def pgle_applied(result: Mapping[str, Any]) -> JudgedCheck:
    if result["pgle"] is None:
        return JudgedCheck("no PGLE", ["the result does not say whether PGLE was applied"])
    seen = result["pgle"]["seen"]
    not_applied = [] if seen["applied"] else [f"not applied: {seen['reason']}"]
    return JudgedCheck(seen["reason"], [*not_applied, *invalid(result)])


# --- a trace, a clock, a peak, the same work ----------------------------------------------------


def trace_adds_up(report: Mapping[str, Any]) -> JudgedCheck:
    """The kinds of work of a step add up to what our own clock says of the same steps."""
    mean, compared = report["mean"], report["comparison"]
    if mean is None or compared is None:
        return JudgedCheck("no comparison", ["the trace has no step to compare"])
    whole, clock = sum(mean["wall_seconds"].values()), compared["clock_seconds_per_step"]
    apart = whole / clock - 1
    parts = [f"{kind} {seconds / whole:.0%}" for kind, seconds in mean["wall_seconds"].items() if seconds]
    figures = f"{seconds_text(whole)} in the trace, {seconds_text(clock)} by the clock ({apart:+.2%}); "
    problems = [] if abs(apart) <= TRACE_APART else [f"{apart:+.1%} apart, {TRACE_APART:.0%} are allowed"]
    return JudgedCheck(figures + ", ".join(parts), problems)


def clock_costs_little(printed: str) -> JudgedCheck:
    """Judge the clock's cost from the output of tests/measure_overhead.py."""
    found = RATIO.search(printed)
    if found is None:
        return JudgedCheck("no ratio", ["no ratio was printed"])
    low, high = float(found["low"]), float(found["high"])
    problems = [] if low <= CLOCK_COSTS else [f"a step takes at least {low - 1:.1%} longer under the clock"]
    problems += [] if high - low <= CLOCK_BLURRED else ["the interval is too wide to say: was the machine busy?"]
    return JudgedCheck(f"{found[0]} of steps with Stepmark's clock to those without", problems)


def peak_believable(peaks: Mapping[str, Any], published: Mapping[str, float]) -> JudgedCheck:
    """Measured TFLOP/s by precision; `published`: the datasheet's, of those that are known."""
    words, problems = [], []
    for dtype, peak in peaks.items():
        share = peak["tflops"] / published[dtype] if dtype in published else None
        words.append(f"{dtype} {peak['tflops']:.4g} TFLOP/s" + ("" if share is None else f" ({share:.0%})"))
        if share is not None and not PEAK_SHARE[0] <= share <= PEAK_SHARE[1]:
            low, high = PEAK_SHARE
            problems.append(f"{dtype}: {share:.0%} of the datasheet's peak, {low:.0%} to {high:.0%} are believable")
        if peak["spread"] is not None and peak["spread"] > PEAK_SPREAD:
            problems.append(f"{dtype}: a spread of {peak['spread']:.0%} between turns")
    return JudgedCheck(", ".join(words) or "no peak", problems if words else ["no precision was measured"])


def same_work(proof: Mapping[str, Any]) -> JudgedCheck:
    lines = [(one["model"], line) for one in proof["comparisons"] for line in one["lines"]]
    within = [(model, line) for model, line in lines if line["tolerance"]]
    nearest = max(within, key=lambda one: one[1]["difference"] / one[1]["tolerance"], default=None)
    figures = f"{len(lines)} lines in {proof['dtype']} on {proof['hardware']}"
    if nearest is not None:
        model, line = nearest
        figures += f"; nearest to its tolerance: {line['quantity']} of {model}, {line['difference']:.1e} of "
        figures += f"{line['tolerance']:.0e}"
    problems = [f"{model}: {line['quantity']} differs" for model, line in lines if not line["agrees"]]
    return JudgedCheck(figures, problems)
