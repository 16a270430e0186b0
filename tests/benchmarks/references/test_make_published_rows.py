"""docs/make_published_rows.py: rows out of pages of several tags, each once, and what is left out."""

import runpy
import subprocess
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[3] / "docs/make_published_rows.py"))
PAGE = """\
# Expected Performance
E.g. 8192 * 128 / 11.1 = 94466
The model flops for Llama 3.1 8b for GBS=1 is 4.74E+14.

| Llama 3.1 8b {container}BF16 (TP=1, PP=1, CP=2, MBS=1) | 8x H100 GPUs (GBS=128) | 16x H100 GPUs (GBS=256) |
|---|:---:|:---:|
| Training step time (seconds per step) | 12.91 | {second} |
| Model flops utilization | 59.37% | 58.96% |

| Llama 3.1 8b Finetuning SFT BF16 | 8x H100 GPUs |
|---|:---:|
| Training step time (seconds per step) | 1.32 |
"""
SUMMARY = """\
## 25.11 NeMo Container
#### System: DGX-GB200

| Model | #-GPUs | Precision | GBS | MBS | Sequence Length | FSDP | TP | PP | CP | VP |\
 Tokens / sec / GPU | Model TFLOP / sec / GPU |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
| LLAMA3_70B | 64 | FP8-CS (FP8-MX) | 128 | 2 | 8192 | 64 (0) | 1 (2) | 1 (4) | 1 | 1 (5) | {speeds} | 1791 (1593) |
| DeepSeekV3 | 256 | BF16 | 4096 | 1 | 4096 | 0 | 1 | 2 | 1 | 4 | 3840 | 961 |
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def publish(clone: Path, tag: str, file: str, text: str) -> None:
    (clone / file).parent.mkdir(exist_ok=True)
    (clone / file).write_text(text)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["add", "."], [*author, "commit", "-qm", tag], ["tag", tag]):
        subprocess.run(["git", "-C", str(clone), *command], check=True)


def test_what_tags_publish_again_is_one_row_and_what_is_left_out_is_named(clone: Path) -> None:
    publish(clone, "v24.11", "llama3.1/README_8b.md", PAGE.format(container="24.09 ", second="13.00"))
    publish(clone, "v25.02", "llama3.1/README_8b.md", PAGE.format(container="", second="12.99"))
    rows, out = SCRIPT["collected"](SCRIPT["dgxc"](clone))
    assert [(row["tag"], row["line"], row["gpus"], row["seconds_per_step"]) for row in rows] == [
        ("v24.11", "7", "8", "12.91"),
        ("v24.11", "7", "16", "13.00"),
        ("v25.02", "7", "16", "12.99"),
    ]
    assert [rows[1][name] for name in ("model", "context", "data", "global_batch_size")] == [
        "llama31_8b",
        "2",
        "8",
        "256",
    ]
    assert rows[0]["stated_flops_per_sequence"] == "4.74e14"
    assert {found.reason for found in out} == {
        "a worked example beside a table, or of a run that is not stated",
        "full fine-tuning, which is no task here",
    }


@pytest.mark.parametrize(("speeds", "resolution"), [("3986 (3546)", ""), ("3968 (3584)", "128")])
def test_two_precisions_of_one_line_are_two_rows_in_their_own_layouts(
    clone: Path, speeds: str, resolution: str
) -> None:
    """Speeds that are all of whole sequences/s were rounded to them."""
    publish(clone, "v0.2.1", "docs/performance-summary.md", SUMMARY.format(speeds=speeds))
    rows, out = SCRIPT["collected"](SCRIPT["bridge"](clone))
    axes = ("precision", "tensor", "pipeline", "virtual_pipeline", "fsdp", "data", "resolution")
    assert [tuple(row[name] for name in axes) for row in rows] == [
        ("FP8-CS", "1", "1", "1", "64", "1", resolution),
        ("FP8-MX", "2", "4", "5", "1", "8", resolution),
    ]
    assert out == []
