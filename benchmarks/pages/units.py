"""Figures of any unit as text, and the scale of an axis that shows them. Pure."""

from benchmarks.rendering.report import bytes_text, seconds_text

SECONDS, BYTES, PERCENT = ("s", "seconds"), ("bytes", "B"), ("%", "percent")
OF_NOTHING = ("", "ratio", "1")  # a plain number


def value_text(value: float, unit: str) -> str:
    """Four significant digits with the unit that suits."""
    if unit in SECONDS and value > 0:
        return seconds_text(value)
    if unit in BYTES:
        return bytes_text(value)
    shown = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if unit in PERCENT:
        return f"{shown}%"
    return shown if unit in OF_NOTHING else f"{shown} {unit}"


def axis_unit(unit: str, typical: float) -> tuple[float, str]:
    """What figures are multiplied by for an axis, and the words above it."""
    if unit in SECONDS:
        return unit_of_seconds(typical)
    if unit in BYTES:
        return (1e-9, "GB") if typical >= 1e9 else (1e-6, "MB")
    return 1.0, "" if unit in OF_NOTHING else unit


def unit_of_seconds(seconds: float) -> tuple[float, str]:
    if seconds >= 1:
        return 1.0, "seconds"
    return (1e3, "milliseconds") if seconds >= 1e-3 else (1e6, "microseconds")
