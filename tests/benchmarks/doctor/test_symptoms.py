"""The table of symptoms: each is known by its samples, and by nothing that a healthy run prints."""

from pathlib import Path

import pytest

from benchmarks.doctor.symptoms import Kind, Symptoms, SymptomTable
from benchmarks.errors import RequestError
from tests.benchmarks.doctor.reading import SYMPTOMS, diagnosis, ids, steps

TESTS = Path(__file__).resolve().parents[2]
SAMPLES = [(one.id, sample) for one in SYMPTOMS.table.symptoms for sample in one.samples]
# Real logs of runs that trained. Of one, an attempt was killed and the next went on; three were cut off.
CUT_OFF = {
    "megatron-lm-interval-10.log": "100 of 1000",
    "nemo-bar-2.7.3.log": "40 of 1010",
    "nemo-bar-24.09-order.log": "40 of 1010",
}
HEALTHY = sorted(
    path for path in [*TESTS.glob("*/logs/*.log"), *TESTS.glob("*/samples/*.txt")] if path.name not in CUT_OFF
)


@pytest.mark.parametrize(("name", "sample"), SAMPLES)
def test_each_sample_is_known_by_its_own_symptom_and_by_no_other(name: str, sample: str) -> None:
    found = diagnosis(a_log=f"a line\n{sample}\nanother line\n")
    assert [one.id for one in [*found.entries, *found.warnings] if one.id == name or one.kind != "begin"] == [name]


@pytest.mark.parametrize("writer", ["3: ", "[rank3]: ", "[default3]:", "2026-11-22 10:00:00 ", "\x1b[31m"])
@pytest.mark.parametrize(("name", "sample"), [SAMPLES[0], *[one for one in SAMPLES if one[0] == "gpu_memory"]])
def test_whoever_wrote_the_line(writer: str, name: str, sample: str) -> None:
    assert ids(diagnosis(a_log=f"{writer}{sample}\n"))[0] == name


@pytest.mark.parametrize("path", HEALTHY, ids=[path.name for path in HEALTHY])
def test_a_healthy_log_shows_no_failure(path: Path) -> None:
    found = diagnosis(a_log="loss: 2.5\n" + path.read_text(errors="replace"))  # the samples are no logs of a training
    assert ids(found) in ([], ["no_end"])
    assert {one.id for one in found.warnings} <= ({"killed"} if "restart" in path.name else set())


@pytest.mark.parametrize("name", CUT_OFF)
def test_a_log_that_was_cut_off_stops_early(name: str) -> None:
    (path,) = TESTS.glob(f"*/logs/{name}")
    found = diagnosis(a_log=path.read_text(errors="replace"))
    assert (found.failed, ids(found)) == (True, ["stopped_early"])
    assert found.entries[0].first.text.endswith(CUT_OFF[name])


HARMLESS = [
    "I1121 13:51:57.101093 140090981755776 pyconfig.py:591] Config param note: CUDA out of memory. Tried to allocate",
    "Config param on_failure: No space left on device",
    "  exit_on_missing_checkpoint ...................... Address already in use",
    "export NCCL_NOTE='NCCL Error 2: unhandled system error'",
    "HF_HUB_OFFLINE=1",
    "INFO: no errors, 0 failed, nothing was killed",
    "2026-11-22 10:00:00,123 INFO root: the last job had: RuntimeError: CUDA out of memory",
    "[NeMo I 2026-11-22 10:00:00 exp:1] retrying after: Connection reset by peer",
    "n1:1234:1234 [0] NCCL INFO Failed to open libibverbs.so[.1]",
    "n1:1234:1240 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>",
    "n1:1234:1240 [3] NCCL INFO misc/socket.cc:47 -> Connection closed by remote peer n2<40000>",
    "n1:1234:1240 [0] NCCL INFO Channel 00/16 : 0 1 2 3 4 5 6 7",
    "E1121 13:51:57.310937 1400 cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register factory",
    "W1121 13:51:57.310937 1400 dot_merger.cc:3] a fatal-looking warning without any error",
    "UserWarning: None of the inputs have requires_grad=True. Gradients will be None",
    "FutureWarning: You are using `torch.load` with `weights_only=False`",
    "WARNING: eval_accuracy is logged as NaN-safe value",
    "number of skipped iterations:   0 | number of nan iterations:   0 |",
    "loss scale: 1.0 | grad norm: inf | params norm: 12.0",
    "no module named 'nan'",
    "srun: Step created for StepId=12.0",
    "srun: error: n1: task 0: Exited with exit code 0",
    "srun: job 7 has been allocated resources",
    "rm: cannot remove '/usr/local/cuda/compat/lib': Read-only file system",
    "n1:1:1 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : cannot open shared object file",
    '    raise ValueError("No dot product attention support for the provided inputs!")',
    "echo 'error: Address already in use'",
    "Cannot import zarr, support for zarr-based checkpoints is not available. ModuleNotFoundError: No module named z",
    "# slurmstepd: error: *** JOB 7 CANCELLED AT 2025-01-01T00:00:00 DUE TO TIME LIMIT ***",
    "slurmstepd: error: couldn't chdir to `/home/me': No such file or directory: going to /tmp instead",
    "enabled oom killer protection",
    "I think the process will be Killed",
    "Timeout(ms)=1800000 is the watchdog's timeout",
    ':::MLLOG {"key": "run_stop", "value": null, "metadata": {"status": "success"}}',
    '{"rank":0,"exit_code":0,"time":1763733117.1,"host":"node1"}',
    '  "state": "COMPLETED",',
]


@pytest.mark.parametrize("line", HARMLESS)
def test_a_line_that_only_sounds_like_a_failure(line: str) -> None:
    for text in (f"loss: 2.5\n{line}\ntraining finished\n", f"loss: 2.5\ntraining finished\n{line}\n"):
        found = diagnosis(a_log=text)
        assert (found.failed, ids(found), [one.id for one in found.warnings]) == (False, [], [])


def test_a_run_full_of_warnings_that_ended_well_is_healthy_and_they_are_counted() -> None:
    lines = "ERROR: could not reach the tracker\nWARNING: No GPU/TPU found, falling back to CPU.\n" * 50
    found = diagnosis(a_log=lines + steps(5) + "`Trainer.fit` stopped: `max_steps=5` reached.\n")
    assert (found.failed, found.ended_well) == (False, True)
    assert {one.id: one.lines for one in found.warnings} == {"jax_cpu": 50, Kind.SUSPECT: 50}


def test_an_error_that_no_symptom_fits_is_called_unknown_and_what_may_be_said_of_its_class() -> None:
    found = diagnosis(a_log="Traceback (most recent call last):\nFileNotFoundError: /data/a.json\n").entries[0]
    assert found.title == "an error that is not known (a file or a folder is not there)"
    assert (
        diagnosis(a_log="F1121 13:51:57.310937 1400 a.cc:1] Check failed: x\n").entries[0].title.endswith("not known")
    )


def changed(**fields: object) -> SymptomTable:
    import msgspec

    return msgspec.structs.replace(SYMPTOMS.table, **fields)


def test_a_table_that_cannot_work_is_refused() -> None:
    import msgspec

    first = SYMPTOMS.table.symptoms[0]
    for broken in ({"pattern": "("}, {"words": []}, {"pattern": ""}):
        with pytest.raises(RequestError, match="pattern"):
            Symptoms(changed(symptoms=[msgspec.structs.replace(first, **broken)]))
    with pytest.raises(RequestError, match="one id"):
        Symptoms(changed(symptoms=[first, first]))
