"""launch/ingest.py as a user runs it: what it prints, its exit codes, how it joins several logs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forked

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "launch" / "ingest.py"
REAL_LOG = REPOSITORY / "tests" / "jax_backend" / "logs" / "maxtext-0.2.5.log"
START = "I1121 13:51:57.310937 1400 maxtext_utils.py:2098] Num_devices: 1, shape (1, 1)\n"
BENCHMARK = ["--model=llama2_70b", "--hardware=h100", "--gpus=64", "--dtype=bf16"]
BENCHMARK += ["--global_batch_size=128", "--sequence_length=4096"]


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    done = forked.run_bytes(SCRIPT, *arguments, stdin=stdin)
    assert b"Traceback" not in done.stderr
    return done


def as_json(*arguments: str, stdin: bytes = b"") -> Any:
    done = run("--json", *arguments, stdin=stdin)
    assert done.returncode in (0, 3), done.stderr.decode()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    report = json.loads(done.stdout, parse_constant=refuse)
    invalid = report.get("result", {}).get("status") == "invalid"
    assert done.returncode == (3 if invalid else 0)
    return report


def step_lines(numbers: range, seconds: str = "7.000") -> str:
    return "".join(f"completed step: {n}, seconds: {seconds}, TFLOP/s: 1.731, loss: 9.123\n" for n in numbers)


def numbers(report: Any) -> list[list[int]]:
    return [[step["step"] for step in attempt["steps"]] for attempt in report["attempts"]]


@pytest.fixture
def log(tmp_path: Path) -> Any:
    def write(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text)
        return f"--log={path}"

    return write


# --- one log ----------------------------------------------------------------------------------


def test_real_log_as_json() -> None:
    report = as_json(f"--log={REAL_LOG}")
    assert list(report) == ["format", "attempts", "duplicates", "skipped_lines", "other_formats"]
    assert report["format"] == "maxtext"
    assert numbers(report) == [list(range(12))]
    assert report["attempts"][0]["steps"][1]["seconds"] == 0.218
    assert report["attempts"][0]["steps"][1]["loss"] == 6.082


def test_table_names_gaps_duplicates_and_skipped_lines(log: Any) -> None:
    text = step_lines(range(3)) + step_lines(range(2, 3)) + step_lines(range(5, 7)) + "completed step: 7, sec\n"
    shown = run(log("a", text + step_lines(range(2)))).stdout.decode()
    assert "3-4" in shown
    assert "duplicates: 1" in shown
    assert "line 7: truncated: no seconds" in shown
    assert [row.split()[:3] for row in shown.splitlines()[2:4]] == [["1", "0-6", "5"], ["2", "0-1", "2"]]


def test_attempts_duplicates_and_skipped_lines(log: Any) -> None:
    text = (
        START + step_lines(range(3)) + step_lines(range(2, 3)) + START + step_lines(range(1, 3)) + "completed step: 3"
    )
    report = as_json(log("a", text))
    assert numbers(report) == [[0, 1, 2], [1, 2]]
    assert report["duplicates"] == 1
    assert report["skipped_lines"] == [{"line": 9, "reason": "truncated"}]


def test_standard_input() -> None:
    assert as_json("--log=-", stdin=REAL_LOG.read_bytes()) == as_json(f"--log={REAL_LOG}")


def test_reader_that_goes_away(log: Any) -> None:
    flag = log("a", step_lines(range(100_000)))
    command = f"{sys.executable} {SCRIPT} {flag} --json | head -c 100"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=60)
    assert len(done.stdout) == 100
    assert done.stderr == b""


# --- several logs -----------------------------------------------------------------------------


def test_another_host(log: Any) -> None:
    logs = log("a", START + step_lines(range(10))), log("b", START + step_lines(range(9)))
    report = as_json(*logs)
    assert numbers(report) == [list(range(10))]
    assert report["duplicates"] == 9


def test_rotated_log(log: Any) -> None:
    assert numbers(as_json(log("a", step_lines(range(5))), log("b", step_lines(range(5, 9))))) == [list(range(9))]


@pytest.mark.parametrize("second", [range(15, 30), range(30), range(21, 30)])
def test_a_restart_in_another_log_is_never_merged(log: Any, second: range) -> None:
    report = as_json(log("a", START + step_lines(range(21))), log("b", START + step_lines(second)))
    assert numbers(report) == [list(range(21)), list(second)]
    assert {s["attempt"] for s in report["attempts"][1]["steps"]} == {2}
    assert report["duplicates"] == 0


# --- NeMo and Megatron ------------------------------------------------------------------------

NEMO_LOGS = REPOSITORY / "tests" / "nemo_backend" / "logs"


@pytest.mark.parametrize(
    ("name", "format_name", "expected"),
    [
        ("nemo-2.7.3-validation.log", "nemo", [list(range(12))]),
        ("nemo-bar-24.09-order.log", "nemo-bar", [list(range(40))]),
        ("megatron-bridge-restart.log", "megatron", [list(range(1, 10)), list(range(10, 21))]),
    ],
)
def test_logs_of_nemo_and_megatron(name: str, format_name: str, expected: list[list[int]]) -> None:
    report = as_json(f"--log={NEMO_LOGS / name}")
    assert (report["format"], numbers(report)) == (format_name, expected)
    assert (report["duplicates"], report["skipped_lines"]) == (0, [])


def test_logs_of_two_formats_are_refused() -> None:
    done = run(f"--log={REAL_LOG}", f"--log={NEMO_LOGS / 'nemo-2.7.3-validation.log'}")
    assert done.returncode == 2
    assert "two formats: maxtext and nemo" in done.stderr.decode()


def megatron_lines(numbers: range, left_out: dict[int, str]) -> str:
    """Iterations of 7.9 s; in one that is left out no loss is printed."""
    healthy = "lm loss: 9.000000E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    return "".join(
        f" iteration {n:8d}/     100 | consumed samples: {n:12d} | "
        f"elapsed time per iteration (ms): {7900 + n % 5}.0 | "
        f"{left_out.get(n, healthy)}\n"
        for n in numbers
    )


SKIPPED = "number of skipped iterations:   1 | number of nan iterations:   0 |"


def test_a_loss_that_is_not_finite_is_no_result_of_a_benchmark(log: Any) -> None:
    broken = "lm loss: nan | number of skipped iterations:   0 | number of nan iterations:   0 |"
    result = as_json(log("a", megatron_lines(range(1, 51), {50: broken})), *BENCHMARK)["result"]
    assert result["status"] == "invalid"
    assert "the loss is not finite in 1 steps (first: 50)" in result["reasons"]
    assert result["loss"]["last"] is None
    assert "loss.last" in result["null_because"]


# --- what the log says against the flags --------------------------------------------------------


def nemo_lines(numbers: range, batch: int = 128, more: str = "") -> str:
    return "".join(
        f"Training epoch 0, iteration {n}/99 | lr: 0.003 | global_batch_size: {batch} | global_step: {n} | "
        f"reduced_train_loss: {9 - n / 100:.4} | train_step_timing in s: {7.9 + n % 5 / 1000:.4} | "
        f"consumed_samples: {batch * (n + 1)}{more}\n"
        for n in numbers
    )


def whole_megatron_lines(numbers: range, batch: int = 128, tflops: float = 440.0, norm: str = "1.490") -> str:
    return "".join(
        f" [2026-04-27 00:00:01] iteration {n:8d}/      99 | consumed samples: {batch * n:12d} | "
        f"elapsed time per iteration (ms): {7900 + n % 5}.0 | throughput per GPU (TFLOP/s/GPU): {tflops} | "
        f"learning rate: 1.000000E-04 | global batch size: {batch:5d} | lm loss: {9 - n / 100:.6E} | "
        f"loss scale: 1.0 | grad norm: {norm} | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        for n in numbers
    )


def bar_paints(numbers: range, batch: int = 128) -> str:
    return "".join(
        f"\rEpoch 0: :  47%|##| {n + 1}/99 [06:19<07:13, reduced_train_loss={9 - n / 100:.2f}, global_step={n}.0, "
        f"consumed_samples={batch * (n + 1)}.0, train_step_timing in s={7.9 + n % 5 / 100:.2f}]"
        for n in numbers
    )


EVERY_WRITER = pytest.mark.parametrize("lines", [nemo_lines, whole_megatron_lines, bar_paints])


@EVERY_WRITER
def test_the_logs_own_batch_makes_a_valid_result(log: Any, lines: Any) -> None:
    result = as_json(log("a", lines(range(1, 51))), *BENCHMARK)["result"]
    assert (result["status"], result["reasons"]) == ("valid", [])
    assert not [note for note in result["notes"] if "those of the flags" in note]


@EVERY_WRITER
def test_another_batch_than_the_logs_is_invalid(log: Any, lines: Any) -> None:
    result = as_json(log("a", lines(range(1, 51), batch=96)), *BENCHMARK)["result"]
    assert result["status"] == "invalid"
    (reason,) = result["reasons"]
    assert reason.startswith("the log's global batch is 96 in ")
    assert reason.endswith("--global_batch_size says 128")


def test_a_gradient_norm_that_is_not_finite_is_no_training(log: Any) -> None:
    broken = log("a", whole_megatron_lines(range(1, 51), norm="nan"))
    other = log("b", nemo_lines(range(49)) + nemo_lines(range(49, 50), more=" | grad_norm: inf"))
    megatron, nemo = (as_json(flag, *BENCHMARK)["result"] for flag in (broken, other))
    assert "the gradient norm is not finite in 50 steps (first: 1)" in megatron["reasons"]
    assert megatron["seconds_per_step"]["median"] is None
    assert nemo["reasons"] == ["the gradient norm is not finite in 1 steps (first: 49)"]
    assert nemo["window"]["excluded"]["gradient norm not finite"] == 1


def test_a_loss_that_never_changes_is_no_training(log: Any) -> None:
    result = as_json(log("a", megatron_lines(range(1, 51), {20: SKIPPED})), *BENCHMARK)["result"]
    assert result["reasons"] == [
        "the loss is the same to the last printed digit in all 49 steps: nothing was trained"
    ]


# --- two formats in one log -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "others"),
    [
        ([nemo_lines(range(25)), whole_megatron_lines(range(1, 26))], ["megatron"]),
        ([nemo_lines(range(25)), "noise\n" * 400_000, whole_megatron_lines(range(1, 26))], ["megatron"]),
        ([step_lines(range(25)), nemo_lines(range(3)), whole_megatron_lines(range(1, 4))], ["megatron", "nemo"]),
        ([bar_paints(range(25)), "\n", nemo_lines(range(25))], []),  # one run's bar and lines
        ([nemo_lines(range(25))], []),
    ],
)
def test_a_run_of_another_format_is_not_lost_silently(log: Any, parts: list[str], others: list[str]) -> None:
    flag = log("a", "".join(parts))
    report = as_json(flag)
    assert (numbers(report), report["other_formats"]) == ([list(range(25))], others)
    shown = run(flag).stdout.decode()
    assert (f"other formats: {', '.join(others)} (" in shown) == bool(others)


# --- with a benchmark -------------------------------------------------------------------------


def test_result_is_of_the_last_attempt_with_seconds(log: Any) -> None:
    text = step_lines(range(50), "9.000") + START + step_lines(range(50), "7.908") + START
    hidden = "completed profiler activation/deactivation step: 0, total_weights: 8, loss: 6.058, x: 1\n"
    report = as_json(log("a", text + hidden), *BENCHMARK)
    assert len(report["attempts"]) == 3
    assert report["result"]["seconds_per_step"]["median"] == pytest.approx(7.908)
    shown = run(log("a", text + hidden), *BENCHMARK).stdout.decode()
    assert "result of attempt 2" in shown


@pytest.mark.parametrize("missing", BENCHMARK)
def test_half_a_benchmark_is_refused(missing: str) -> None:
    done = run(f"--log={REAL_LOG}", *[flag for flag in BENCHMARK if flag != missing])
    assert done.returncode == 2
    assert missing.split("=", maxsplit=1)[0] in done.stderr.decode().splitlines()[0]


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no log given"),
        (["--log=/no/such/file"], "No such file"),
        ([f"--log={REPOSITORY}"], "Is a directory"),
        (["--log=/dev/null"], "empty"),
        (["--log=-"], "empty"),
        (["--log=-", "--log=-"], "once"),
        ([f"--log={REPOSITORY / 'setup.cfg'}"], "known formats: mllog, maxtext"),
        ([str(REAL_LOG)], "unexpected argument"),
        ([f"--log={REAL_LOG}", "--gpu=3"], "gpus"),
        ([f"--log={REAL_LOG}", "--gpus=0"], "gpus"),
        ([f"--log={REAL_LOG}", "--window=last"], "--model"),
        ([f"--log={REAL_LOG}", "--task=lora"], "--model"),
        ([f"--log={REAL_LOG}", *BENCHMARK, "--task=sft"], "task"),
        ([f"--log={REAL_LOG}", *BENCHMARK, "--window=first"], "window"),
        ([f"--log={REAL_LOG}", *BENCHMARK, "--model=llama9"], "llama9"),
    ],
)
def test_refusals(arguments: list[str], says: str) -> None:
    done = run("--json", *arguments)
    assert done.returncode == 2
    assert says in done.stderr.decode()
    assert done.stdout == b""
