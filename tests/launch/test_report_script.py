"""launch/report.py as a user runs it over a folder of logs: every file is counted, the JSON is always valid."""

import gzip
import json
import os
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.logs.timing_table import Timings
from benchmarks.text import digits
from tests import forked

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "launch" / "report.py"
REAL_LOGS = REPOSITORY / "tests" / "jax_backend" / "logs"
START = "I1121 13:51:57.310937 1400 maxtext_utils.py:2098] Num_devices: 1, shape (1, 1)\n"
MEMORY = "3: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB\n"
EXITED = "srun: error: n1: tasks 0-7: Exited with exit code 1\n"


def run(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    done = forked.run_bytes(SCRIPT, *arguments, **options)
    assert b"Traceback" not in done.stderr
    return done


def as_json(*arguments: str | Path, **options: Any) -> Any:
    done = run("--json", *arguments, **options)
    assert done.returncode == 0, done.stderr.decode()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    report = json.loads(done.stdout, parse_constant=refuse)
    msgspec.convert(report, Timings)
    counts = Counter(row["status"] for row in report["rows"])
    assert report["files"] == counts.total()
    assert report["by_status"] == {status: counts[status] for status in report["by_status"]}
    return report


def by_name(report: Any) -> dict[str, Any]:
    return {Path(row["path"]).name: row for row in report["rows"]}


def seconds_of(step: int) -> float:
    return 4 + step % 7 / 1000


def steps(stop: int, start: int = 0, tflops: float = 700.25) -> str:
    line = "completed step: {n}, seconds: {s:.3f}, TFLOP/s/device: {t}, loss: 9.123\n"
    return "".join(line.format(n=n, s=seconds_of(n), t=tflops) for n in range(start, stop))


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def experiment(root: Path, name: str, log: str, batch: str = "") -> Path:
    """The layout of the recipes: experiments/NAME/NAME_TIME/NAME/{log-,sbatch_}NAME.out."""
    folder = root / name / f"{name}_1700000000" / name
    write(folder, f"sbatch_{name}.out", batch)
    return write(folder, f"log-{name}.out", log)


@pytest.fixture
def experiments(tmp_path: Path) -> Path:
    root = tmp_path / "experiments"
    experiment(root, "lora_good_1", START + steps(50))
    experiment(root, "lora_short_2", START + steps(38))
    experiment(root, "lora_memory_3", START + steps(38) + MEMORY + EXITED)
    return root


# --- the layout of the recipes ----------------------------------------------------------------


def test_the_table_of_parse_train_timing(experiments: Path) -> None:
    done = run("--window=35-44", experiments)
    text = done.stdout.decode()
    assert done.returncode == 0
    assert done.stderr == b""
    assert text.splitlines()[0] == "Train Step Timing and TFLOPS Analysis (iterations 35-44)"
    times = [round(seconds_of(n), 3) for n in range(35, 45)]
    figures = [digits(statistics.mean(times)), digits(statistics.stdev(times)), "700.2", "0"]
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert lines["lora_good_1"] == ["lora_good_1", "Success", "10", *figures]
    assert lines["lora_short_2"][1:3] == lines["lora_memory_3"][1:3] == ["Incomplete", "3/10"]
    assert "reached step 37" in text
    assert text.splitlines()[-1] == "6 files: 1 Success, 2 Incomplete, 3 Not a training log"


# --- files of every kind ----------------------------------------------------------------------


def test_files_that_are_called_as_logs_are_counted_and_named(tmp_path: Path) -> None:
    good = START + steps(50)
    write(tmp_path, "good.log", good)
    write(tmp_path, "deep/er/log-a", good)
    write(tmp_path, "empty.out", b"")
    write(tmp_path, "binary.out", bytes(range(256)) * 100)
    write(tmp_path, "packed.log.gz", gzip.compress(good.encode()))
    write(tmp_path, "false.log.gz", b"\x1f\x8b\x08\x00 no gzip")
    write(tmp_path, "late.log", b"x\n" * (3 << 19) + good.encode())
    write(tmp_path, "notes.md", good)
    os.mkfifo(tmp_path / "pipe.log")
    found = {name: row["status"] for name, row in by_name(as_json(tmp_path)).items()}
    assert [name for name, status in sorted(found.items()) if status == "Success"] == [
        "good.log", "late.log", "log-a", "packed.log.gz"
    ]  # fmt: skip
    assert found["empty.out"] == found["binary.out"] == "Not a training log"
    assert found["false.log.gz"] == "Unreadable"
    assert len(found) == 7
    assert "named pipe" in by_name(as_json(tmp_path / "pipe.log"))["pipe.log"]["reason"]
    assert as_json(tmp_path / "notes.md")["by_status"]["Success"] == 1


def test_names_that_are_no_text(tmp_path: Path) -> None:
    for name in (b"new\nline.log", b"\xff\xfe.log", b'quote".log', b"bell\x07.log", "größe.log".encode()):
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).write_text(START + steps(50))  # noqa: PTH118
    assert as_json(tmp_path)["by_status"]["Success"] == 5
    in_ascii = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0"}
    shown = subprocess.run([sys.executable, SCRIPT, tmp_path], env=in_ascii, capture_output=True, check=False)
    assert shown.returncode == 0
    assert b"\x07" not in shown.stdout
    assert b"new\\nline.log" in shown.stdout


@pytest.mark.parametrize(
    "damage",
    [
        "completed step: 3, sec\n",
        "completed step: 40, seconds: nan, TFLOP/s: inf, loss: nan\n" * 3,
        "completed step: 99999999999999, seconds: 1.000, TFLOP/s: 1.0, loss: 1.0\n",
        "\0" * 5000,
        "\x1b[31m\r\r\r",
        "completed step: 40, seconds: 1e308, TFLOP/s: 1e308, loss: 1.0\n" * 2,
    ],
)
def test_json_of_damaged_logs_is_valid(tmp_path: Path, damage: str) -> None:
    write(tmp_path, "a.log", steps(40) + damage + steps(50, start=40))
    write(tmp_path, "b.log", damage)
    for rule in ("35-44", "last", "steady"):
        assert as_json(f"--window={rule}", tmp_path)["files"] == 2


# --- real logs, and the other formats ---------------------------------------------------------


def test_real_logs() -> None:
    rows = by_name(as_json("--window=2-6", REAL_LOGS, REPOSITORY / "tests/nemo_backend/logs"))
    assert rows["maxtext-0.2.5-profiler.log"]["excluded"] == {"profiler": "4-5, 7-8"}
    found = {name: (row["status"], row["format"]) for name, row in rows.items()}
    assert found["maxtext-0.2.5.log"][0] == "Success"
    assert found["nemo-2.7.3-validation.log"] == ("Success", "nemo")
    assert found["megatron-bridge-restart.log"] == ("Incomplete", "megatron")


def test_published_rows_are_listed() -> None:
    table = run("references").stdout.decode()
    assert "llama31_70b pretrain bf16 2048 x h100" in table and table.splitlines()[-1] == "359 rows, 62 omitted"
