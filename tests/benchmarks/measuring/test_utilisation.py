"""MFU against every peak that applies, and HFU: worked out by hand, and against what a compiled program held."""

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.measuring.figures import Figures, measure
from benchmarks.measuring.utilisation import MIXED, Mfu, Workload, fastest_possible_seconds
from benchmarks.values import Peak, Recompute, Step

CONFIGS = Configs()
GATE_AND_UP = Recompute(matmuls=frozenset({"mlpwi_0", "mlpwi_1"}))
NOTHING = Recompute()


def work(hardware: str = "h100", dtype: str = "bf16", **changed: object) -> Workload:
    workload = Workload(
        model=CONFIGS.model("llama2_70b"),
        hardware=CONFIGS.hardware(hardware),
        task="pretrain",
        dtype=dtype,
        gpus=64,
        sequence_length=4096,
        global_batch_size=128,
        recompute=NOTHING,
    )
    return msgspec.structs.replace(workload, **changed)


def figures_of(workload: Workload, seconds: float = 6.999) -> Figures:
    steps = [Step(step=n, seconds=value, loss=5.0, tokens=None) for n, value in enumerate((30.0, seconds))]
    return measure(workload, steps, "last")[0]


def entries(workload: Workload, seconds: float = 6.999) -> dict[tuple[str, str], Mfu]:
    found = figures_of(workload, seconds).mfu
    assert found is not None
    return {(m.convention, m.precision_peak): m for m in found}


def peak(tflops: float) -> dict[str, Peak]:
    return {"bf16": Peak(tflops=tflops, source="launch/peak.py, 2026-12-01, n 15")}


# --- against every peak ---------------------------------------------------------------------------


def test_a_run_stands_between_the_datasheet_and_the_achievable() -> None:
    """Seed 003's 64 GPUs: 52.6% of 989, 65.5% of 794.5."""
    found = entries(work())
    assert found["recipe", "bf16"].percent == pytest.approx(52.604, abs=0.001)
    achievable = found["recipe, achievable", "bf16"]
    assert (achievable.peak_tflops, achievable.percent) == (794.5, pytest.approx(65.482, abs=0.001))
    assert achievable.peak_source.startswith("stas00/ml-engineering")
    assert (achievable.counted_by, achievable.table) == ("recipe", "achievable")
    assert (found["recipe", "bf16"].counted_by, found["recipe", "bf16"].table) == ("recipe", "datasheet")


def test_the_datasheet_comes_first_and_every_table_has_every_convention() -> None:
    found = figures_of(work(measured_peaks=peak(760.0))).mfu
    assert found is not None
    names = ["recipe", "causal", "palm", "torchtitan"]
    tables = ["", ", achievable", ", measured"]
    assert [m.convention for m in found] == [f"{name}{table}" for table in tables for name in names]


def test_where_published_tables_divide_by_another_peak_there_is_an_mfu_by_each() -> None:
    found = entries(work("gb200"))
    assert found["recipe", "bf16"].percent * 2500 == pytest.approx(found["recipe, published", "bf16"].percent * 2450)
    assert "datasheet" in found["recipe", "bf16"].peak_source
    assert "dgxc-benchmarking" in found["recipe, published", "bf16"].peak_source


def test_fp8_is_held_against_three_peaks_of_each_table() -> None:
    found = figures_of(work(dtype="fp8"), 4.324).mfu
    assert found is not None
    recipe = [(m.table, m.precision_peak, m.peak_tflops) for m in found if m.counted_by == "recipe"]
    assert [(table, precision) for table, precision, _ in recipe] == [
        (table, precision) for table in ("datasheet", "achievable") for precision in ("fp8", "bf16", MIXED)
    ]
    assert [tflops for *_, tflops in recipe] == pytest.approx([1979, 989, 1839.07, 1402.6, 794.5, 1325.49], abs=0.01)


@pytest.mark.parametrize(("dtype", "datasheet"), [("mxfp8", 4500.0), ("nvfp4", 9000.0)])
def test_blackwells_precisions_have_their_own_peak(dtype: str, datasheet: float) -> None:
    found = figures_of(work("b200", dtype), 4.324).mfu
    assert found is not None
    peaks = {m.precision_peak: m.peak_tflops for m in found if (m.counted_by, m.table) == ("recipe", "datasheet")}
    assert peaks.keys() == {dtype, "bf16", MIXED}
    assert peaks["bf16"] < peaks[MIXED] < peaks[dtype] == datasheet


def test_a_cpu_has_an_mfu_where_its_peak_was_measured() -> None:
    found = figures_of(work("cpu", "fp32", measured_peaks={"fp32": Peak(tflops=0.5, source="launch/peak.py")}))
    assert found.mfu is not None
    first = found.mfu[0]
    assert (first.convention, first.precision_peak) == ("recipe, measured", "fp32")
    assert first.peak_source == "measured: launch/peak.py"
    assert not {"mfu", "hfu"} & found.null_because.keys()
    assert {m.table for m in found.mfu} == {"measured"}


def test_without_any_peak_the_way_to_one_is_named() -> None:
    found = figures_of(work("cpu", "fp32"))
    assert (found.mfu, found.hfu) == (None, None)
    assert found.null_because["mfu"].startswith("no fp32 peak is published")
    assert found.null_because["hfu"] == found.null_because["mfu"]


# --- what cannot be, and what is odd ----------------------------------------------------------------


def test_only_the_datasheet_makes_a_step_impossible() -> None:
    slow = work(measured_peaks=peak(300.0))
    assert fastest_possible_seconds(slow) == fastest_possible_seconds(work())
    found = figures_of(slow)
    assert found.complaints == []
    assert [note for note in found.notes if "measured bf16 peak" in note] == found.notes != []
    assert figures_of(work(measured_peaks=peak(760.0))).notes == []
    assert fastest_possible_seconds(work("cpu", measured_peaks=peak(300.0))) is None


@pytest.mark.parametrize(("vocabulary", "counts_tokens"), [(32_000, True), (0, False)])
def test_a_model_without_formulas_has_a_rate_of_its_tokens(vocabulary: int, counts_tokens: bool) -> None:
    model = msgspec.structs.replace(CONFIGS.model("flux1"), vocabulary_size=vocabulary)
    found = figures_of(work(model=model))
    assert found.null_because["mfu"] == model.uncounted
    assert (found.tokens_per_second is not None) == counts_tokens
    assert ("tokens_per_second" in found.null_because) != counts_tokens
