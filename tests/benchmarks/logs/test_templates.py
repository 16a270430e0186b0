"""Log formats as data: every file of configs/log_formats on its own samples and templates."""

import io
from pathlib import Path

import pytest
import yaml

from benchmarks.backend import LogFormat
from benchmarks.configs import DEFAULT_ROOT
from benchmarks.errors import RequestError
from benchmarks.logs.templates import TemplateFormat, all_log_formats, format_of_pattern, formats_in
from benchmarks.reading.read_log import ReadLog, formats_of
from benchmarks.values import Step
from nemo_backend.logs import MegatronLog
from tests.benchmarks.logs.formats import seeds_of_formats

FORMATS = {one.name: one for one in formats_in(DEFAULT_ROOT)}
each_format = pytest.mark.parametrize("found", FORMATS.values(), ids=FORMATS)


def read(log_format: LogFormat, text: str | bytes) -> ReadLog:
    return ReadLog(log_format.read(io.BytesIO(text.encode() if isinstance(text, str) else text)))


def steps_of(log_format: LogFormat, text: str) -> list[Step]:
    (steps,) = read(log_format, text).attempts
    return steps


@each_format
def test_every_line_of_a_sample_is_read_and_by_its_own_format_alone(found: TemplateFormat) -> None:
    sample = found.facts.sample
    assert [one.name for one in all_log_formats() if one.recognises(sample.encode())] == [found.name]
    log = read(found, sample)
    assert log.skipped == []
    assert sum(map(len, log.attempts)) == len(sample.splitlines())
    assert bool(found.seconds_are) != bool(found.no_seconds)
    for steps in log.attempts:
        assert all((step.seconds is None) == bool(found.no_seconds) for step in steps)


# The first step of each sample: its number, seconds, loss, TFLOP/s and tokens/s a device, and other rates.
FIRST_STEPS: dict[str, tuple[object, ...]] = {
    "torchtitan": (22, None, 6.225, 18.36, 193_831, {"mfu_percent": 1.86}),
    "nanogpt": (0, 9.37181, 4.2648, None, None, None),
    "llm-c": (1, 2.49444, 11.032358, None, None, {"tokens_per_second": 210_183, "mfu_percent": 40.3}),
    "deepspeed-pipeline": (10, 0.936, 5.5508, None, None, {"samples_per_second": 136.706}),
    "deepspeed": (10, None, None, None, None, {"samples_per_second": 222.88787331278564}),
    "gpt-neox": (6, 4.7771, 11.18582, 97.0, None, {"samples_per_second": 6.699}),
    "megatron-deepspeed": (12000, 106.17, 2.31, 147.0, None, {"samples_per_second": 19.29}),
}


@pytest.mark.parametrize("name", FIRST_STEPS)
def test_what_each_format_says(name: str) -> None:
    one = read(FORMATS[name], FORMATS[name].facts.sample).attempts[0][0]
    rates = (one.framework_tflops_per_device, one.framework_tokens_per_second_per_device, one.framework_rates)
    assert (one.step, one.seconds, one.loss, *rates) == FIRST_STEPS[name]


def test_deepspeed_leaves_a_log_to_the_framework_above_it() -> None:
    text = FORMATS["deepspeed"].facts.sample + FORMATS["gpt-neox"].facts.sample
    found = next(formats_of(io.BytesIO(text.encode()), all_log_formats()))
    assert found.name == "gpt-neox"


@pytest.mark.parametrize("separator", [b"\r\n", b"\r", b"\x0c", b"\x0b", b"\x85", b"\xe2\x80\xa8"])
def test_lines_are_parted_by_line_ends_alone_and_none_is_lost(separator: bytes) -> None:
    """A separator that does not end lines leaves two reports in one: each is read as usual, or listed."""
    for seed in seeds_of_formats():
        found = next(formats_of(io.BytesIO(seed.text), all_log_formats()))
        (steps,), log = read(found, seed.text).attempts, read(found, seed.text.replace(b"\n", separator))
        (parted,) = log.attempts or [[]]
        assert log.duplicates == 0
        assert len(parted) + len(log.skipped) == len(steps)
        assert all(step in steps for step in parted)
        assert log.skipped == [] or separator not in (b"\r\n", b"\r")


# --- templates --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "line", "expected"), yaml.safe_load(Path(__file__).with_name("patterns.yml").read_text())
)
def test_patterns(pattern: str, line: str, expected: list[float | None] | None) -> None:
    log = read(format_of_pattern(pattern), line + "\n")
    if expected is None:
        assert log.attempts == []
        assert len(log.skipped) == 1
        return
    ((step,),) = log.attempts
    assert str([step.step, step.seconds, step.loss]) == str(expected)  # nan does not equal nan


@pytest.mark.parametrize("pattern", ["{steps} a", "step {step} {step}", "loss {loss}", "{step}", ""])
def test_patterns_that_are_refused(pattern: str) -> None:
    with pytest.raises(RequestError):
        format_of_pattern(pattern)


# --- NeMo and Megatron ------------------------------------------------------------------------

MEGATRON = (
    " iteration {0:8d}/      99 | elapsed time per iteration (ms): {1:.1f} | global batch size:     8 |"
    " lm loss: 2.1E+00 | grad norm: 0.2 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    " samples per second: 53.753 | TFLOPs: 78.36 |\n"
)


def test_tflops_of_megatron_bridge_stand_on_the_line_before() -> None:
    line = MEGATRON.replace(" | TFLOPs: 78.36", "")
    bridge = "Step Time : 0.90s GPU utilization: 412.5MODEL_TFLOP/s/GPU\n"
    steps = steps_of(MegatronLog(), bridge + line.format(1, 900) + line.format(2, 900))
    assert [step.framework_tflops_per_device for step in steps] == [412.5, None]
