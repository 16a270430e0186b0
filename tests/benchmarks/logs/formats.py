"""Lines of every log format, and what is read of them, for the tests of the formats."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.backend import LogEvent, LogFormat
from benchmarks.configs import DEFAULT_ROOT, read_yaml
from benchmarks.logs.templates import FOLDER, FormatFacts, Template, TemplateFormat, formats_in
from benchmarks.values import Step
from jax_backend.logs import MaxTextLog
from nemo_backend.logs import MegatronLog, NemoLog

TESTS = Path(__file__).parents[2]
LOGS = TESTS / "nemo_backend" / "logs"
JAX_LOGS = TESTS / "jax_backend" / "logs"


def nanogpt_format(chunk_bytes: int = 1 << 20) -> TemplateFormat:
    """A format that is data, for all that holds for every format."""
    return TemplateFormat("nanogpt", read_yaml(DEFAULT_ROOT / FOLDER / "nanogpt.yml", FormatFacts), chunk_bytes)


class Seed(NamedTuple):
    """A log; a pattern for it, and the benchmark that agrees with it."""

    text: bytes
    pattern: str = "step: {step}, ... seconds: {seconds}, ... loss: {loss}"
    gpus: int = 1
    global_batch_size: int = 2
    sequence_length: int = 128


def seeds_of_formats(steps: int = 30) -> list[Seed]:
    """Each line of each sample of configs/log_formats as a log of many steps."""
    found = []
    for one in formats_in(DEFAULT_ROOT):
        facts = one.facts
        lines = [Template(text) for text in ([facts.line] if isinstance(facts.line, str) else facts.line)]
        more = [Template(text) for text in facts.more]
        starts = "".join(f"{text}\n" for text in facts.starts)
        for line in facts.sample.splitlines():
            template = next(one for one in lines if one.pattern.search(line.encode()))
            log = "".join(f"{_at_step(line, [template, *more], step)}\n" for step in range(1, steps + 1))
            found.append(Seed((starts + log).encode(), template.text, 64, 2048, 4096))
    return found


def _at_step(line: str, templates: list[Template], step: int) -> str:
    """A sample's line with another step and loss."""
    new = {"step": str(step), "loss": f"{12 - step / 10:.4f}"}
    for template in templates:
        for field in new.keys() & set(template.fields):
            if match := template.pattern.search(line.encode()):
                line = line[: match.start(field)] + new[field] + line[match.end(field) :]
    return line


KINDS: dict[str, Callable[..., LogFormat]] = {
    "maxtext": MaxTextLog,
    "nemo": NemoLog,
    "megatron": MegatronLog,
    "nanogpt": nanogpt_format,
}
NEMO_START = "GPU available: True (cuda), used: True\n"
MEGATRON_START = "> initializing torch distributed ...\n"
MAXTEXT_START = "I1121 13:51:57.310937 1400 maxtext_utils.py:2098] Num_devices: 1, shape (1, 1)\n"
START = {"maxtext": MAXTEXT_START, "nemo": NEMO_START, "megatron": MEGATRON_START}
START["nanogpt"] = "number of parameters: 10.65M\n"


def maxtext(step: int, seconds: str = "12.640", loss: str = "11.030") -> str:
    return (
        f"completed step: {step}, seconds: {seconds}, TFLOP/s/device: 0.009, Tokens/s/device: 13403.141, "
        f"total_weights: 256, loss: {loss}"
    )


def nemo(
    step: int,
    seconds: str = "12.64",
    loss: str = "11.03",
    more: str = " | consumed_samples: 2304",
    batch: int = 128,
) -> str:
    return (
        f"Training epoch 0, iteration {step}/99 | lr: 2.699e-06 | global_batch_size: {batch} | global_step: {step} | "
        f"reduced_train_loss: {loss} | train_step_timing in s: {seconds}{more}"
    )


def megatron(step: int, ms: str = "12640.0", loss: str = "1.103000E+01", skipped: int = 0, nan: int = 0) -> str:
    return (
        f" [2026-04-27 00:00:01] iteration {step:8d}/      99 | consumed samples: {step:12d} | "
        f"elapsed time per iteration (ms): {ms} | learning rate: 1.000000E-04 | global batch size:     2 | "
        + (f"lm loss: {loss} | " if loss else "")
        + f"loss scale: 1.0 | grad norm: 1.0 | number of skipped iterations: {skipped:3d} | "
        f"number of nan iterations: {nan:3d} |"
    )


LINE = {
    "maxtext": maxtext,
    "nemo": nemo,
    "megatron": megatron,
    "nanogpt": lambda step: f"iter {step}: loss 11.0300, time 12640.00ms, mfu 16.66%",
}
EVERY_FORMAT = pytest.mark.parametrize("kind", KINDS)


def read(kind: str, text: str | bytes, chunk_bytes: int = 1 << 20) -> list[LogEvent]:
    data = text.encode() if isinstance(text, str) else text
    return list(KINDS[kind](chunk_bytes).read(io.BytesIO(data)))


def steps(events: list[LogEvent]) -> list[Step]:
    return [e.step for e in events if e.step is not None]


def numbers(events: list[LogEvent]) -> list[int]:
    return [s.step for s in steps(events)]


def skipped(events: list[LogEvent]) -> list[tuple[int, str]]:
    return [(e.skipped.line, e.skipped.reason) for e in events if e.skipped is not None]


def duplicates(events: list[LogEvent]) -> int:
    return sum(e.duplicates for e in events)


def by_attempt(events: list[LogEvent]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for step in steps(events):
        found.setdefault(step.attempt, []).append(step.step)
    return found


def lines(kind: str, *numbers: int, label: str = "") -> str:
    return "".join(f"{label}{LINE[kind](n)}\n" for n in numbers)
