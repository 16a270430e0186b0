"""launch/ingest.py as a user runs it: what it prints, its exit codes; with a benchmark, what the figures are, whose
convention the TFLOP/s are, and which published figure is nearest.
"""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.logs.report import IngestDocument
from benchmarks.logs.templates import pattern_for
from tests import forked
from tests.benchmarks.logs.formats import nemo

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "launch" / "ingest.py"
REAL_LOG = REPOSITORY / "tests" / "jax_backend" / "logs" / "maxtext-0.2.5.log"
START = "I1121 13:51:57.310937 1400 maxtext_utils.py:2098] Num_devices: 1, shape (1, 1)\n"
BENCHMARK = ["--model=llama2_70b", "--hardware=h100", "--gpus=64", "--dtype=bf16"]
BENCHMARK += ["--global_batch_size=128", "--sequence_length=4096"]
TINY = ["--model=llama2_tiny", "--hardware=cpu", "--gpus=1", "--dtype=bf16"]
TINY += ["--global_batch_size=2", "--sequence_length=128"]
LLAMA_8B = ["--model=llama31_8b", "--hardware=h100", "--gpus=8", "--dtype=bf16"]
LLAMA_8B += ["--global_batch_size=128", "--sequence_length=8192"]


def run(*arguments: str, stdin: bytes = b"", cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    done = forked.run_bytes(SCRIPT, *arguments, stdin=stdin, cwd=cwd)
    assert b"Traceback" not in done.stderr
    return done


def as_json(*arguments: str, stdin: bytes = b"") -> Any:
    done = run("--json", *arguments, stdin=stdin)
    assert done.returncode in (0, 3), done.stderr.decode()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    report = json.loads(done.stdout, parse_constant=refuse)
    msgspec.convert(report, IngestDocument)
    invalid = report.get("result", {}).get("status") == "invalid"
    assert done.returncode == (3 if invalid else 0)
    return report


def numbers(report: Any) -> list[list[int]]:
    return [[step["step"] for step in attempt["steps"]] for attempt in report["attempts"]]


@pytest.fixture
def log(tmp_path: Path) -> Callable[[str, str], str]:
    def write(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text)
        return f"--log={path}"

    return write


Log = Callable[[str, str], str]

# --- what each framework writes ---------------------------------------------------------------


def step_lines(numbers: range, seconds: str = "7.000") -> str:
    return "".join(f"completed step: {n}, seconds: {seconds}, TFLOP/s: 520.2, loss: 9.123\n" for n in numbers)


def nemo_lines(numbers: range, batch: int = 128, more: str = "") -> str:
    return "".join(
        nemo(n, f"{7.9 + n % 5 / 1000:.4}", f"{9 - n / 100:.4}", f" | consumed_samples: 256{more}", batch) + "\n"
        for n in numbers
    )


def megatron_lines(
    numbers: range, batch: int = 128, tflops: float = 440.0, norm: str = "1.490", ms: int = 7900, loss: str = ""
) -> str:
    return "".join(
        f" [2026-04-27 00:00:01] iteration {n:8d}/      99 | consumed samples: {batch * n:12d} | "
        f"elapsed time per iteration (ms): {ms + n % 5}.0 | throughput per GPU (TFLOP/s/GPU): {tflops} | "
        f"learning rate: 1.000000E-04 | global batch size: {batch:5d} | "
        f"lm loss: {loss or format(9 - n / 100, '.6E')} | "
        f"loss scale: 1.0 | grad norm: {norm} | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        for n in numbers
    )


# --- one log ----------------------------------------------------------------------------------


def test_real_log_as_json() -> None:
    report = as_json(f"--log={REAL_LOG}")
    keys = "format attempts duplicates skipped_lines other_formats seconds_are seconds_null_because"
    assert list(report) == keys.split()
    assert report["format"] == "maxtext"
    assert numbers(report) == [list(range(12))]
    first = report["attempts"][0]["steps"][1]
    assert (first["seconds"], first["loss"]) == (0.218, 6.082)
    assert as_json("--log=-", stdin=REAL_LOG.read_bytes()) == report


def test_attempts_gaps_duplicates_and_skipped_lines(log: Log) -> None:
    text = START + step_lines(range(3)) + step_lines(range(2, 3)) + step_lines(range(5, 7))
    flag = log("a", text + START + step_lines(range(1, 3)) + "completed step: 3")
    report = as_json(flag)
    assert numbers(report) == [[0, 1, 2, 5, 6], [1, 2]]
    assert (report["duplicates"], report["skipped_lines"]) == (1, [{"line": 11, "reason": "truncated"}])
    shown = run(flag).stdout.decode()
    assert [row.split()[:3] for row in shown.splitlines()[2:4]] == [["1", "0-6", "5"], ["2", "1-2", "2"]]
    for words in ("3-4", "duplicates: 1", "line 11: truncated"):
        assert words in shown


@pytest.mark.parametrize(
    ("parts", "others"),
    [
        ([nemo_lines(range(25)), megatron_lines(range(1, 26))], ["megatron"]),
        ([nemo_lines(range(25)), "noise\n" * 400_000, megatron_lines(range(1, 26))], ["megatron"]),
        ([step_lines(range(25)), nemo_lines(range(3)), megatron_lines(range(1, 4))], ["megatron", "nemo"]),
        ([nemo_lines(range(25))], []),
    ],
)
def test_a_run_of_another_format_is_not_lost_silently(log: Log, parts: list[str], others: list[str]) -> None:
    flag = log("a", "".join(parts))
    report = as_json(flag)
    assert (numbers(report), report["other_formats"]) == ([list(range(25))], others)
    shown = run(flag).stdout.decode()
    assert (f"other formats: {', '.join(others)} (" in shown) == bool(others)


# --- with a benchmark -------------------------------------------------------------------------

OTHER_BATCH = "the log's global batch is 96 in "


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((lines(range(1, 51)), "") for lines in (nemo_lines, megatron_lines)),
        *((lines(range(1, 51), batch=96), OTHER_BATCH) for lines in (nemo_lines, megatron_lines)),
        (
            megatron_lines(range(1, 50)) + megatron_lines(range(50, 51), loss="nan"),
            "the loss is not finite in 1 steps (first: 50)",
        ),
        (megatron_lines(range(1, 51), norm="nan"), "the gradient norm is not finite in 50 steps (first: 1)"),
        (
            nemo_lines(range(49)) + nemo_lines(range(49, 50), more=" | grad_norm: inf"),
            "the gradient norm is not finite in 1 steps (first: 49)",
        ),
        (
            megatron_lines(range(1, 51), loss="9.000000E+00"),
            "the loss is the same to the last printed digit in all 50 steps: nothing was trained",
        ),
    ],
    ids=lambda value: str(value)[-30:],
)
def test_a_result_is_invalid_where_the_log_says_other_than_the_flags_or_did_not_train(
    log: Log, text: str, reason: str
) -> None:
    result = as_json(log("a", text), *BENCHMARK)["result"]
    assert result["status"] == ("invalid" if reason else "valid")
    assert any(one.startswith(reason) for one in result["reasons"]) or not (reason or result["reasons"])


def test_whose_convention_the_printed_tflops_are(log: Log) -> None:
    notes = as_json(f"--log={REAL_LOG}", *TINY)["result"]["notes"]
    assert "the log's TFLOP/s imply 0.0006409 GFLOP per token: the convention is causal" in notes
    for tflops, words in (
        (45.0, "51.5 GFLOP per token: the convention is causal"),
        (45.2, "the nearest is causal, +0.5%"),
    ):
        flag = log("megatron.log", megatron_lines(range(1, 51), tflops=tflops, ms=150_000))
        assert any(words in note for note in as_json(flag, *LLAMA_8B)["result"]["notes"])


def test_flags_that_the_logs_own_tflops_or_mfu_refute_are_named(log: Log) -> None:
    flag = log("megatron.log", megatron_lines(range(1, 51)))
    other_model = as_json(flag, "--model=llama31_8b", *BENCHMARK[1:])["result"]
    assert other_model["status"] == "invalid"
    assert any("times the TFLOP/s" in reason for reason in other_model["reasons"])
    titan = log("titan.log", titan_lines(range(1, 51)).replace("mfu: 41.19", "mfu: 9.870"))
    other_peak = as_json(titan, *LLAMA_8B_ON_8)["result"]
    assert other_peak["status"] == "valid"
    assert any("times Stepmark's nearest" in note for note in other_peak["notes"])


def test_a_log_is_compared_with_the_nearest_published_figure(log: Log) -> None:
    lines = (step_lines(range(n, n + 1), "6.999").replace("9.123", f"9.{n + 100}") for n in range(50))
    flag = log("maxtext.log", "".join(lines))
    report = as_json(flag, *BENCHMARK)
    assert report["reference"]["reference"] == "llama2_70b pretrain bf16 64 x h100"
    assert report["reference"]["ratio"] == 1
    layout, window = "layout fsdp 64 in the published row, not known", "window last in the published row, steady"
    assert report["reference"]["differs"] == [f"{layout} in this run", f"{window} in this run"]
    assert report["no_reference_because"] is None
    shown = run(flag, *BENCHMARK).stdout.decode()
    assert "reference     1.000 x the tokens/s per GPU of llama2_70b pretrain bf16 64 x h100, 6.999 s/step\n" in shown
    assert "52.60%" in shown
    assert "{" not in shown  # --json has the whole result


def test_where_nothing_is_published_or_the_figures_are_invalid_it_says_so(log: Log) -> None:
    report = as_json(f"--log={REAL_LOG}", *TINY)
    assert report["reference"] is None
    assert report["no_reference_because"] == "no published result for llama2_tiny pretrain bf16 on cpu"
    report = as_json(log("still.log", step_lines(range(50))), *BENCHMARK)  # of one loss throughout
    assert (report["reference"], report["no_reference_because"]) == (None, "the metrics are invalid")


# --- formats that are data, and patterns ------------------------------------------------------

LLAMA_8B_ON_8 = [*LLAMA_8B[:-2], "--global_batch_size=8", "--sequence_length=8192"]


def titan_lines(numbers: range) -> str:
    return "".join(
        f"[rank0]:[titan] 2025-06-04 08:51:58,557 - root - INFO - step: {n:2}  loss: {9 - n / 100:7.4f}  "
        f"memory: 30.99GiB(32.62%)  tps: {7030 + n % 5:,}  tflops: 407.35  mfu: 41.19%\n"
        for n in numbers
    )


def test_a_log_of_rates_has_figures_by_the_flags(log: Log) -> None:
    flag = log("titan.log", titan_lines(range(1, 51)))
    report = as_json(flag, *LLAMA_8B_ON_8)
    result = report["result"]
    assert report["attempts"][0]["steps"][9]["seconds"] is None
    assert "torchtitan" in report["seconds_null_because"]
    assert result["status"] == "valid"
    assert result["tokens_per_second_per_gpu"] == pytest.approx(7032, rel=1e-3)
    assert result["reported_by_framework"]["mfu_percent_median"] == 41.19
    assert result["reported_by_framework"]["seconds_per_step_median"] is None
    assert any(note.startswith("the log has no step times") for note in result["notes"])


def test_the_table_and_the_json_count_the_same_steps(log: Log) -> None:
    lines = [megatron_lines(range(n, n + 1), ms=31) for n in range(1, 41)]
    lines[30] = megatron_lines(range(31, 32), ms=31, norm="nan")
    flag = log("megatron.log", "".join(lines))
    median = as_json(flag, *TINY)["result"]["seconds_per_step"]["median"]
    for arguments in ([flag], [flag, *TINY]):
        shown = run(*arguments).stdout.decode()
        assert f"{median:.5f}" in shown.splitlines()[2]
        assert "gradient norm not finite: 31\n" in shown


def test_ranks_whose_lines_are_interleaved_are_one_run(log: Log, tmp_path: Path) -> None:
    """srun --label: now the one, now the other rank is the first to print a step."""
    lines = [line for n in range(40) for line in step_lines(range(n, n + 1)).splitlines()]
    both = [f"{rank}: {line}\n" for n, line in enumerate(lines) for rank in ((0, 1) if n % 2 else (1, 0))]
    report = as_json(log("ranks.log", "".join(both)), *BENCHMARK)
    assert (report["duplicates"], numbers(report)) == (40, [list(range(40))])
    assert report["result"]["window"]["counted"] > 30
    assert "0-39" in run(f"--log={tmp_path / 'ranks.log'}").stdout.decode()


def test_a_pattern_reads_a_log_of_no_known_format(log: Log) -> None:
    flag = log(
        "own.log", "".join(f"step {n}/50 | loss {3 - n / 100:.3f} | took 0.5{n % 10}s\n" for n in range(1, 51))
    )
    refused = run(flag)
    suggested = "--pattern=step {step} ... loss {loss} ... {seconds}s"
    assert (refused.returncode, suggested in refused.stderr.decode().replace("'", "")) == (2, True)
    assert numbers(as_json(flag, suggested)) == [list(range(1, 51))]
    report = as_json(flag, "--pattern=step {step}/50 ... loss {loss} | took {seconds}s")
    assert (report["format"], numbers(report)) == ("pattern", [list(range(1, 51))])
    assert report["attempts"][0]["steps"][0]["seconds"] == 0.51
    assert run(flag, "--pattern=no {step} here").returncode == 2
    assert "--pattern" in run(flag, "--pattern=no {step} here").stderr.decode()
    assert "unknown field 'stop'" in run(flag, "--pattern=step {stop}").stderr.decode()


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("[1/9] Iter 7: train_loss=3.21 (12.5 ms)", "Iter {step} ... loss={loss} ... {milliseconds} ms"),
        ("{'loss': 3.1, 'global_step': 7}", "loss': ... {loss} ... step': ... {step}"),
        ("no number follows the word step", ""),
    ],
)
def test_a_suggested_pattern_fits_a_line_of_the_log(line: str, pattern: str) -> None:
    assert pattern_for(f"first steps\n{line}\n".encode()) == pattern


def test_rates_without_times_are_not_counted_as_0(log: Log) -> None:
    lines = (f"step: {n}  loss: 3.{n}  memory: 1.0GiB  tps: 7,00{n % 9}  mfu: 41.86%\n" for n in range(1, 60))
    flag = log("titan.log", "".join(lines))
    alone, *_ = run(flag).stdout.decode().splitlines()[2:]
    assert alone.split()[:5] == ["1", "1-59", "59", "-", "-"]
    assert "no_time" not in run(flag, *LLAMA_8B).stdout.decode()


def test_numbers_that_must_not_be_passed_over_are_named(log: Log) -> None:
    lines = [f"iter {n}: loss {3 - n / 100}, time 90.{n}ms, mfu 1.00%\n" for n in range(30)]
    lines[7] = "iter 7: loss nan, time 90.0ms, mfu 1.00%\n"
    lines[9] = "iter 9: loss 2.5, time 0.00ms, mfu 1.00%\n"
    lines[11] = "iter 11: loss 2.5, time 1e300ms, mfu 1.00%\n"
    shown = run(log("odd.log", "".join(lines))).stdout.decode()
    for words in ("loss not finite: 7\n", "taking 0 s: 9\n", "line 12: seconds cannot be 1e+297\n"):
        assert words in shown
    rates = ["--pattern=step {step} tok/s {tokens_per_second}", *TINY]
    report = as_json(log("slow.log", "".join(f"step {n} tok/s 1e-300\n" for n in range(30))), *rates)
    assert report["result"]["status"] == "invalid"


# --- no step ----------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [[], BENCHMARK])
@pytest.mark.parametrize(
    ("text", "skipped", "why"),
    [
        (START, 0, "no line of a step"),
        ("iter 5: loss 3.2, time -5.1ms\niter 6: loss 3.2, ti\n", 2, "line 1: seconds cannot be"),
    ],
)
def test_a_log_without_a_step_is_invalid_and_says_why(
    log: Log, text: str, skipped: int, why: str, flags: list[str]
) -> None:
    flag = log("a.log", text)
    done = run("--json", flag, *flags)
    assert done.returncode == 3
    assert len(json.loads(done.stdout)["skipped_lines"]) == skipped
    for words in (f"where: {flag}", why, "next:  "):
        assert words in done.stderr.decode()
    assert b"missing steps" not in run(flag, *flags).stdout  # no table without rows


def test_a_packed_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(gzip.compress(REAL_LOG.read_bytes()))
    assert as_json(f"--log={path}") == as_json("--log=-", stdin=path.read_bytes()) == as_json(f"--log={REAL_LOG}")


def test_a_pipe_of_the_shell_is_read(log: Log) -> None:
    path = log("a.log", step_lines(range(5))).removeprefix("--log=")
    command = f"{sys.executable} {SCRIPT} --log=<(cat {path})"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
