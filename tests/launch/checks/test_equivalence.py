"""`verify.py --equivalence` around the frameworks: who takes part, exit codes, files. Two stand-ins compute."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.backend import SideProgram, backends
from benchmarks.configs import Configs
from benchmarks.equivalence.equivalence import BATCH, SEQUENCE, UPDATES, Proof
from benchmarks.equivalence.work import CaseReport, CountedFlops, WorkReport, WorkStep, tensor_names
from benchmarks.errors import RequestError
from benchmarks.inside import work_kit
from benchmarks.inside.work_kit import Arrays
from benchmarks.model import flops
from launch.checks import equivalence
from tests.benchmarks.equivalence.test_work import SHAPES

MODEL = Configs().model("llama2_tiny")
FLOPS = round(BATCH * SEQUENCE * flops.flops_per_token(MODEL, SEQUENCE, "recipe"))


def weights_of_its_own() -> Arrays:
    """All numbers different, so that nothing can be moved unseen."""
    numbers = np.random.default_rng(0)
    return {name: numbers.random(SHAPES[name.rpartition(".")[2]], np.float32) for name in tensor_names(MODEL)}


def computed(case: dict[str, Any], given: Arrays, error: float) -> tuple[CaseReport, Arrays]:
    """Return a side's results. The loss is a digest of its case and arrays: any function of them will do."""
    weights = work_kit.starting_weights(case, given, weights_of_its_own)
    stated = {
        **case,
        "attention_scale": case.get("attention_scale") or 1.0,
        "perturb_seed": None,
        "count_flops": None,
    }
    digest = zlib.crc32(json.dumps(sorted((name, value) for name, value in stated.items() if value)).encode())
    for _, array in sorted({**weights, "targets": given["targets"]}.items()):
        digest = zlib.crc32(np.ascontiguousarray(array).tobytes(), digest)
    loss = 6.0 + digest / 2**32 + error
    report = CaseReport(
        parameters=flops.parameter_count(MODEL),
        settings={"norm_epsilon": case.get("norm_epsilon") or 1e-5, "attention_scale": stated["attention_scale"]},
        loss=loss,
        gradient_norm=2.0,
        steps=[WorkStep(loss=loss, gradient_norm=2.0)] * (UPDATES + 1),
        flops=CountedFlops(total=FLOPS) if case["count_flops"] else None,
    )
    arrays = {
        **work_kit.prefixed(work_kit.WEIGHT, weights),
        **work_kit.prefixed(work_kit.GRADIENT, weights),
        **work_kit.prefixed(work_kit.TRAINED, {name: array * 2 for name, array in weights.items()}),
        work_kit.LOGITS: np.zeros((BATCH, SEQUENCE, 4), np.float32),
    }
    return report, arrays


Stand = Callable[..., None]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stand:
    """Puts stand-ins for the programs: the second one's loss is off by `error`."""

    def put(error: float = 0.0) -> None:
        def run(backend: Any, _engine: str, program: SideProgram, folder: Path, _report: Any, **_: Any) -> WorkReport:
            assert any("work_program.py" in word for word in program.command)
            request = json.loads((folder / work_kit.REQUEST).read_bytes())
            cases = {}
            for name in request["cases"]:
                given = work_kit.read(folder / name / work_kit.GIVEN)
                cases[name], arrays = computed(
                    request["cases"][name], given, error if backend.name == "nemo" else 0.0
                )
                work_kit.write(folder / name / work_kit.ARRAYS, arrays)
            return WorkReport(versions={backend.name: "1"}, cases=cases, seconds=1.0, notes=["a note"])

        monkeypatch.setattr(equivalence, "run_side_program", run)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return put


def prove(output_dir: Path | None = None) -> int:
    return equivalence.prove(["llama2_tiny"], output_dir)


def test_backends_that_agree_exit_0_and_leave_no_files(
    stand_in: Stand, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in()
    documents: list[Proof] = []
    answer = equivalence.answer
    monkeypatch.setattr(equivalence, "answer", lambda data, text: (documents.append(data), answer(data, text)))
    assert prove() == 0
    (proof,) = documents
    assert (proof.agree, proof.files) == (True, None)
    assert [found.second for found in proof.comparisons] == ["NeMo (Megatron)", "Megatron Bridge"]
    out, err = capsys.readouterr()
    assert "the same work: llama2_tiny" in out
    assert "DIFFERS" not in out
    assert "MaxText (JAX) trains 4 steps" in err
    assert list((tmp_path / "temporary").iterdir()) == []


def test_backends_that_differ_exit_3_name_the_lines_and_keep_the_files(
    stand_in: Stand, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(error=1e-3)
    assert prove() == 3
    out, _ = capsys.readouterr()
    losses = [f"loss after {n} update{'s' if n > 1 else ''}" for n in (1, 2, 3)]
    assert f"NOT the same work: llama2_tiny: loss, {', '.join(losses)}" in out
    (folder,) = (tmp_path / "temporary").iterdir()
    assert str(folder) in out
    assert (folder / "llama2_tiny/nemo/as_it_is/given.npz").exists()


def test_a_folder_with_files_is_refused(stand_in: Stand, tmp_path: Path) -> None:
    stand_in()
    with pytest.raises(RequestError, match="the folder is not empty"):
        prove(output_dir=tmp_path)


def test_one_backend_alone_is_refused(stand_in: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in()
    monkeypatch.setattr(equivalence, "backends", lambda: {"jax": backends()["jax"]})
    with pytest.raises(RequestError, match="llama2_tiny cannot be compared"):
        prove()


def test_a_large_model_is_refused_before_anything_starts() -> None:
    with pytest.raises(RequestError, match="too large to compare: 6,738,415,616"):
        equivalence.prove(["llama2_7b"], None)
