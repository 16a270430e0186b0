"""The check phase: one task of the training phase, and the one reason of a failed check."""

import pytest

from benchmarks.configs import DEFAULT_ROOT
from benchmarks.doctor.symptoms import read_symptoms
from benchmarks.job_record import ProcessEnd
from benchmarks.measuring import failures
from benchmarks.runs import first_check
from benchmarks.values import Phase, WorkerEnd

SYMPTOMS = read_symptoms(DEFAULT_ROOT)
TRAINS = Phase(
    name="perf",
    command=["{python}", "worker.py", "--", "a=b"],
    environment={"A": "1"},
    nodes=8,
    tasks_per_node=8,
    devices_per_task=1,
    writes_steps=True,
    programs=["nsys"],
    mounts=["/data:/data"],
)
OK = 'stepmark check: ok {"jax": "0.11"}\n'


def reason(log: str, output: str = "", code: int = 1) -> str:
    return first_check.reason(first_check.CHECK, log, output, code, SYMPTOMS)


def test_a_check_is_one_task_with_all_gpus_of_its_node_and_what_the_training_phase_has() -> None:
    found = first_check.check_phase(TRAINS, first_check.with_option(TRAINS.command))
    assert (found.name, found.nodes, found.tasks, found.devices_per_task) == ("check", 1, 1, 8)
    assert (found.environment, found.mounts, found.writes_steps) == ({"A": "1"}, ["/data:/data"], False)
    assert found.command[2:] == ["nsys", "--", "{python}", "worker.py", "--check", "--", "a=b"]
    assert first_check.with_option(["{python}", "run.py"]) == ["{python}", "run.py", "--check"]


def test_what_the_check_says_itself_is_the_reason() -> None:
    log = "jax 0.11\nstepmark check: MaxText refuses it; packing; next: --set=packing=false\nTraceback later\n"
    assert reason(log) == "the check found: MaxText refuses it; packing; next: --set=packing=false"


@pytest.mark.parametrize(
    ("log", "output", "words"),
    [
        (
            "/x/launch/slurm/task.sh: line 28: python3: command not found\n",
            "srun: error: node1: task 0: Exited with exit code 127\n",
            "it printed: /x/launch/slurm/task.sh: line 28: python3: command not found; try: ",
        ),
        ("", "slurmstepd: error: execve(): bash: No such file or directory\n", "a program does not exist"),
        (
            "/x/task.sh: line 28: /usr/bin/python3: cannot execute binary file: Exec format error\n",
            "",
            "a different CPU architecture",
        ),
        (
            'Traceback (most recent call last):\n  File "w.py", line 3\n'
            "ModuleNotFoundError: No module named 'maxtext'\n",
            "",
            "a Python module is missing; it printed: ",
        ),
        (
            "",
            "slurmstepd: error: pyxis: container start failed with error code: 1\n"
            "slurmstepd: error: pyxis:     [ERROR] No such file or directory: /images/none.sqsh\n",
            "container image is missing; it printed: ",
        ),
        ("RuntimeError: cuInit failed\ndone\n", "", "RuntimeError: cuInit failed"),
        ("only this\n", "", "found: only this"),
        ("", "", "it ended with exit code 1 and without output"),
    ],
)
def test_what_could_not_begin_has_a_reason_too(log: str, output: str, words: str) -> None:
    assert words in reason(log, output)
    assert "\n" not in reason(log, output)


def test_a_check_that_was_well_and_then_crashed_is_not_called_ok() -> None:
    assert reason(f"{OK}Fatal Python error: Segmentation fault\n", code=139).endswith("Segmentation fault")


@pytest.mark.parametrize("code", [134, -11])
def test_a_crash_is_not_laid_to_a_module_that_was_missed_before(code: int) -> None:
    log = "WARNING: No module named 'nemo_run'\nF0000 cuda_dnn.cc: no cuDNN\n"
    assert reason(log, code=code).endswith(
        f"it crashed (exit code {code}); its last output: F0000 cuda_dnn.cc: no cuDNN"
    )


def test_no_reason_repeats_a_secret() -> None:
    log = "OSError: 401 for https://me:a-password@hub.io/x with hf_aaaaaaaaaaaaaaaaaaaaaaaa\n"
    ended = failures.how_it_ended(ProcessEnd(rank=0, exit_code=1), WorkerEnd(rank=0, status="error", message=log))
    for text in (reason(log), ended):
        assert "401 for https://<redacted>@hub.io/x with <redacted>" in text
