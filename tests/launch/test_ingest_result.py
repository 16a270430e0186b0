"""launch/ingest.py with a benchmark: whose convention the TFLOP/s are, and which published figure is nearest."""

from pathlib import Path

from tests.launch.test_ingest import BENCHMARK, REAL_LOG, as_json, run, step_lines

TINY = ["--model=llama2_tiny", "--hardware=cpu", "--gpus=1", "--dtype=bf16"]
TINY += ["--global_batch_size=2", "--sequence_length=128"]
LLAMA_8B = ["--model=llama31_8b", "--hardware=h100", "--gpus=8", "--dtype=bf16"]
LLAMA_8B += ["--global_batch_size=128", "--sequence_length=8192"]
MEGATRON_LINE = (
    " [2026-04-27 00:00:01] iteration {n:8d}/      99 | consumed samples: {samples:12d} | "
    "elapsed time per iteration (ms): 150000.0 | throughput per GPU (TFLOP/s/GPU): {tflops} | "
    "learning rate: 1.000000E-04 | global batch size:   128 | lm loss: {loss:.6E} | "
    "loss scale: 1.0 | grad norm: 1.490 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return f"--log={path}"


def megatron_log(folder: Path, tflops: float) -> str:
    """Llama 3.1 8B on 8 GPUs, 150 s a step: 44.975 TFLOP/s a GPU by causal."""
    lines = (MEGATRON_LINE.format(n=n, samples=128 * n, tflops=tflops, loss=9 - n / 100) for n in range(1, 51))
    return write(folder / "megatron.log", "".join(lines))


# --- whose convention ---------------------------------------------------------------------------


def test_a_real_log_of_a_tiny_model_prints_two_digits_of_its_tflops() -> None:
    notes = as_json(f"--log={REAL_LOG}", *TINY)["result"]["notes"]
    assert "its TFLOP/s are 0.0006409 GFLOP a token: the convention is causal" in notes


def test_megatron_prints_one_decimal_of_its_tflops(tmp_path: Path) -> None:
    notes = as_json(megatron_log(tmp_path, 45.0), *LLAMA_8B)["result"]["notes"]
    assert "its TFLOP/s are 51.5 GFLOP a token: the convention is causal" in notes
    notes = as_json(megatron_log(tmp_path, 45.2), *LLAMA_8B)["result"]["notes"]
    assert any("no convention gives that; the nearest is causal, +0.5% off" in note for note in notes)


# --- beside what is published -------------------------------------------------------------------


def test_a_log_stands_beside_the_nearest_published_figure(tmp_path: Path) -> None:
    lines = (step_lines(range(n, n + 1), "6.999").replace("9.123", f"9.{n + 100}") for n in range(50))
    log = write(tmp_path / "maxtext.log", "".join(lines))
    report = as_json(log, *BENCHMARK)
    assert report["reference"]["reference"] == "llama2_70b pretrain bf16 64 x h100"
    assert report["reference"]["ratio"] == 1
    assert report["reference"]["differs"] == ["layout fsdp 64, here not known", "window last, here steady"]
    assert report["no_reference_because"] is None
    shown = run(log, *BENCHMARK).stdout.decode()
    assert "reference: 1.000 x the tokens/s a GPU of llama2_70b pretrain bf16 64 x h100, 6.999 s/step\n" in shown
    assert "\n  differs: layout fsdp 64, here not known\n" in shown


def test_where_nothing_is_published_or_the_figures_are_invalid_it_says_so(tmp_path: Path) -> None:
    report = as_json(f"--log={REAL_LOG}", *TINY)
    assert report["reference"] is None
    assert report["no_reference_because"] == "nothing is published for llama2_tiny pretrain bf16 on cpu"
    still = write(tmp_path / "still.log", step_lines(range(50)))  # of one loss throughout
    report = as_json(still, *BENCHMARK)
    assert report["result"]["status"] == "invalid"
    assert (report["reference"], report["no_reference_because"]) == (None, "the figures are invalid")
    assert "reference: none: the figures are invalid\n" in run(still, *BENCHMARK).stdout.decode()
