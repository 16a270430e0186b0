"""Measured peaks as a table next to the published ones, and a hardware file for an unlisted GPU."""

from benchmarks.machine.peak_file import Measured
from benchmarks.machine.peaks import ROWS, MeasuredRate, spread_text
from benchmarks.text import columns
from benchmarks.values import Hardware, Peak

WIDE_SPREAD = 0.2  # of a peak's turns: beyond it something else had a part of the machine
NONE = "-"


def table(found: Measured, hardware: Hardware | None, title: str) -> list[str]:
    """The rates of every matmul, what they come to, and beside it what is published of the device."""
    peaks, report = found.peaks, found.report
    device = f"{report.device_kind} ({report.platform}), one device"
    if report.platform == "cpu":
        device = f"cpu: {found.processor}, {found.cores} cores, {report.threads} threads"
    by_name: dict[str, dict[str, MeasuredRate]] = {}
    for rate in report.rates:
        by_name.setdefault(rate.shape.name, {})[rate.dtype] = rate
    rows = [("TFLOP/s", "median (turns, spread)", *peaks)]
    for name, rates in by_name.items():
        shape = next(iter(rates.values())).shape.text()
        rows.append((name, shape, *(_cell(rates.get(dtype)) for dtype in peaks)))
    rows.append(("the peak", "the highest median", *(f"{one.tflops:.4g} {one.of}" for one in peaks.values())))
    models = [NONE if one.model_tflops is None else f"{one.model_tflops:.4g}" for one in peaks.values()]
    rows.append(("of the model", f"{found.model}, by FLOPs", *models))
    published = {"published achievable": hardware.achievable, "datasheet": hardware.peaks} if hardware else {}
    for label, theirs in published.items():
        if not theirs:
            continue
        shares = (_share(one.tflops, theirs.get(dtype)) for dtype, one in peaks.items())
        rows.append((label, "the peak is so much of it", *shares))
    return [f"{device} · {title}", *columns(rows), *(f"  {line}" for line in _remarks(found))]


def _cell(rate: MeasuredRate | None) -> str:
    return NONE if rate is None else f"{rate.median:.4g} ({len(rate.tflops)}, {spread_text(rate.spread)})"


def _share(measured: float, published: Peak | None) -> str:
    return NONE if published is None else f"{published.tflops:g} ({measured / published.tflops:.1%})"


def _remarks(found: Measured) -> list[str]:
    """What a reader must know before the figures are believed."""
    report = found.report
    lines = [f"{dtype} was not measured: {why}" for dtype, why in report.refused.items()]
    lines += report.notes
    if report.platform == "cpu":
        if found.request.shapes[0].m < ROWS:
            rows = found.request.shapes[0].m
            lines.append(f"matmuls of {rows} rows (--tokens) instead of the {ROWS} tokens of a sequence")
        lines.append("--gpus=N on this CPU: N virtual devices share it, and each has a peak of 1/N of these")
    for dtype, peak in found.peaks.items():
        if peak.spread is not None and peak.spread > WIDE_SPREAD:
            lines.append(
                f"{dtype}: the turns of the peak differ by {peak.spread:.0%}: another program used the machine, and "
                "the peak may be higher"
            )
    return lines


# --- an unlisted GPU ----------------------------------------------------------------------------


def hardware_yaml(found: Measured, name: str) -> str:
    """A file for configs/hardware. What a program cannot know is empty or null, and has to be filled in."""
    import yaml

    report, date = found.report, found.date[:10]
    source = f"launch/peak.py, {found.backend}, {date}, highest median"
    return "# The datasheet's dense peaks are to be filled in, each with its source.\n" + yaml.safe_dump(
        {
            "name": name,
            "title": report.device_kind,
            "kind": "gpu",
            "platform": report.platform,
            "device_names": [report.device_kind],
            "devices_per_node": report.devices,
            "memory_gb": None if report.memory_gb is None else round(report.memory_gb, 1),
            "peaks": {},
            "achievable": {
                dtype: {"tflops": round(peak.tflops, 1), "source": source} for dtype, peak in found.peaks.items()
            },
            "emulated": [],
            "source": "launch/peak.py; the datasheet is to be named here",
            "date": date,
        },
        sort_keys=False,
    )
