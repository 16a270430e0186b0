"""The first cause comes first: not the loudest, not the one that is printed first, but the earliest."""

from pathlib import Path

import pytest

from benchmarks.doctor.order import NOTHING, RunContext
from benchmarks.doctor.text import diagnosis_text, headline
from tests.benchmarks.doctor.reading import LINES, STEP, TRACE, diagnosis, ids, steps

MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
WATCHDOG = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4)\n"
FROZEN = Path(__file__).with_name("frozen")  # the ends of the logs of MaxText's ranks on two nodes of a private Slurm
DONE = "training finished\n"


@pytest.mark.parametrize(
    "what_follows",
    [
        "srun: error: n1: task 3: Exited with exit code 1\n",
        "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2025-01-01T00:00:00 ***\n",
        "slurmstepd: error: pyxis: couldn't start container\n",
        WATCHDOG.format(1),
        "ConnectionResetError: [Errno 104] Connection reset by peer\n",
        "srun: error: n1: task 3: Killed\n",
        "DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect.\n",
    ],
)
def test_what_follows_from_a_failure_is_never_first(what_follows: str) -> None:
    known = ids(diagnosis(a_log=what_follows))
    assert len(known) == 1  # by itself it is all there is to say
    assert ids(diagnosis(a_log=what_follows + "5: " + MEMORY)) == ["gpu_memory", *known]


def test_what_the_program_went_on_after_is_no_cause() -> None:
    for line in (
        "ImportError: cannot import name 'flash_attn'; falling back to sdpa",
        "CUDA out of memory, halving the batch and retrying",
        "[W1122 10:00:00.1 socket.cpp:697] [c10d] Address already in use",
    ):
        assert ids(diagnosis(a_log=line + "\n" + TRACE + "ValueError: bad\n"))[0] == "unknown"
        assert not diagnosis(a_log=line + "\nstep 1: loss 2.5\n" + DONE).failed
        assert diagnosis(a_log=line + "\n").entries[0].first.text == line


# --- a training that came to no end ---


# A format, what it prints before its steps, a step's line, and the number it gives to the last of 12 steps.
NUMBERED = [
    ("Megatron-LM", "", " iteration {:8d}/      12 | elapsed time per iteration (ms): 9.0 | lm loss: 1.0E+00 |", 12),
    ("NeMo 2", "", "Training epoch 0, iteration {}/11 | reduced_train_loss: 5.8 | train_step_timing in s: 0.2", 11),
    ("a bar", "", "train: :  4%|# | {}/12 [00:37<15:19, reduced_train_loss=4.9]", 12),
    (
        "GPT-NeoX",
        "",
        " samples/sec: 6.6 | iteration {:8d}/   12 | elapsed time per iteration (ms): 9.1 | lm_loss: 1 |",
        12,
    ),
    ("MaxText", "I1 a.py:591] Config param steps: 12", STEP.strip(), 11),
    (
        "torchtitan",
        "[titan] - INFO - sequence length 8, total steps 12 (warmup 2)",
        "step: {:2d}  loss:  6.2  tps: 9",
        12,
    ),
    ("llm.c", "", "step {:4d}/12 | loss 11.032358 (+nanz)| norm 22.1414 (+nanz)| 2494.44 ms |", 12),
    ("nanoGPT", "Overriding: max_iters = 12", "iter {}: loss 4.2648, time 9371.81ms, mfu -100.00%", 12),
    ("Trainer", "  Num Epochs = 12", "{{'loss': 1.9, 'learning_rate': 2e-05, 'epoch': {}.0}}", 12),
]


@pytest.mark.parametrize(("before", "line", "last"), [row[1:] for row in NUMBERED], ids=[row[0] for row in NUMBERED])
def test_a_log_that_ends_before_its_last_step(before: str, line: str, last: int) -> None:
    def until(step: int, every: int = 1) -> str:
        numbers = range(step - 3 * every, step + 1, every)
        return f"{before}\n" + "".join(line.format(number) + "\n" for number in numbers)

    stopped = diagnosis(a_log=until(8)).entries
    assert [one.id for one in stopped] == ["stopped_early"]
    assert stopped[0].first.text in (f"the log ends at {unit} of {last}" for unit in ("step 8", "epoch 8.0"))
    assert not diagnosis(a_log=until(last)).failed
    assert not diagnosis(a_log=until(last - 1, every=2)).failed  # the next would be printed beyond the last
    assert ids(diagnosis(a_log=until(8), b_log=until(last))) == ["stopped_early"]  # one rank or job hides no other
    assert ids(diagnosis(a_log=until(last) + "\n" + until(8) + "a line\n" * 20)) == ["stopped_early"]  # again
    assert ids(diagnosis(a_log=until(8) + MEMORY)) == ["gpu_memory"]


MEGATRON = NUMBERED[0][2] + "\n"
LAST = "".join(MEGATRON.format(number) for number in range(9, 13))


@pytest.mark.parametrize("line", LINES["bad_end"])
def test_a_bad_end_after_the_last_step_in_whatever_words(line: str) -> None:
    for log in (LAST + line + "\n", LAST + "a line\n" + line + "\n" + "a line\n" * 20):
        first = diagnosis(a_log=log).entries[0].first
        assert line.startswith(log.splitlines()[first.line - 1])


@pytest.mark.parametrize("line", LINES["all_done"])
def test_what_says_that_all_is_done(line: str) -> None:
    trained = "step 1: loss 2.5\n"
    assert ids(diagnosis(a_log=trained)) == ["no_end"]
    assert not diagnosis(a_log=f"{trained}{line}\n").failed
    before = diagnosis(a_log=f"{trained}ERROR: could not reach the tracker\n{line}\n")
    assert before.failed == ("Training" not in line)
    assert ids(diagnosis(a_log=f"{line}\n{trained * 20}")) == ["no_end"]
    assert ids(diagnosis(a_log=f"{trained}{line}\nworker 3 crashed\n")) == ["suspect"]


@pytest.mark.parametrize("line", LINES["no_end"])
def test_what_says_nothing_of_the_end(line: str) -> None:
    half = "".join(MEGATRON.format(number) for number in range(6))
    assert ids(diagnosis(a_log=half + line + "\n")) == ["stopped_early"]
    assert ids(diagnosis(a_log="step 1: loss 2.5\n" + line + "\n")) == ["no_end"]


# --- what was survived ------------------------------------------------------------------------------


def test_a_run_that_failed_without_a_word_in_its_logs() -> None:
    silent = diagnosis(RunContext(failed=True, recorded=True), a_log=steps(4))
    assert (silent.failed, silent.entries) == (True, [])
    assert headline(silent).endswith("do not show the reason")


# --- unknown failures -------------------------------------------------------------------------------


def test_unknown_errors_of_many_ranks_are_grouped() -> None:
    logs = {
        f"rank_{rank}_log": TRACE + f"ValueError: shard {rank} of node{rank}.big at 0x7f{rank:04x} is bad\n"
        for rank in range(8)
    }
    found = diagnosis(**logs, rank_8_log=TRACE + "TypeError: something else\n")
    assert [one.ranks for one in found.entries] == [list(range(8)), [8]]
    assert "8 ranks show it: 0-7" in diagnosis_text(found)


# --- a rank that was stopped (SIGSTOP), and woken when the job was ended ------------------------------


def frozen(stopped: int) -> dict[str, str]:
    return {f"rank_{rank}_log": (FROZEN / f"rank-{stopped}-stopped-rank-{rank}.log").read_text() for rank in (0, 1)}


@pytest.mark.parametrize("stopped", [0, 1])
def test_the_rank_that_fell_silent_and_not_the_one_that_says_so(stopped: int) -> None:
    for known in (NOTHING, RunContext(failed=True, first_rank=1 - stopped)):
        first = diagnosis(known, **frozen(stopped)).entries[0]
        assert (first.id, first.first.rank, first.ranks) == ("jax_silent", stopped, [stopped])
        assert first.first.file == f"rank.{1 - stopped}.log"


@pytest.mark.parametrize("stopped", [0, 1])
def test_an_error_of_its_own_comes_before_its_silence(stopped: int) -> None:
    logs = frozen(stopped)
    lines = logs[f"rank_{stopped}_log"].splitlines(keepends=True)
    logs[f"rank_{stopped}_log"] = "".join([*lines[:3], TRACE, "ValueError: a bad record\n", *lines[3:]])
    assert ids(diagnosis(**logs))[:2] == ["unknown", "jax_silent"]


def test_a_silence_comes_before_what_follows_from_it() -> None:
    lost = "E1128 10:56:00.000000   10437 tcp.cc:1] Connection reset by peer\n"
    lines = frozen(1)["rank_0_log"].splitlines(keepends=True)
    logs = frozen(1) | {"rank_0_log": "".join([*lines[:3], lost, *lines[3:]])}
    assert ids(diagnosis(**logs))[:2] == ["jax_silent", "peer_lost"]


SILENT = "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n{}\nThe tasks have crashed.\n"


@pytest.mark.parametrize(
    ("named", "ranks"),
    [
        ("1", [1]),
        ("1\n12", [1, 12]),
        ("/job:jax_worker/replica:0/task:3\n/job:jax_worker/replica:0/task:4", [3, 4]),
        ("nobody", []),
    ],
)
def test_all_ranks_that_fell_silent_are_named(named: str, ranks: list[int]) -> None:
    text = SILENT.format(named)
    for log in (text, "".join(f"0: {line}\n" for line in text.splitlines())):
        found = diagnosis(rank_0_log=log)
        assert [(one.id, one.ranks) for one in found.entries] == [("jax_silent", ranks)]
        assert "show it" not in diagnosis_text(found)
