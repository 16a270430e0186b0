"""The first cause comes first: not the loudest, not the one that is printed first, but the earliest."""

from pathlib import Path

import pytest

from benchmarks.doctor.order import NOTHING, Known
from benchmarks.doctor.text import diagnosis_text, headline
from tests.benchmarks.doctor.reading import STEP, TRACE, diagnosis, ids, steps

MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
WATCHDOG = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4)\n"
FROZEN = Path(__file__).with_name("frozen")  # the ends of the logs of MaxText's ranks on two nodes of a private Slurm
DONE = "training finished\n"
LIMIT = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT {} DUE TO TIME LIMIT ***\n"


def at(time: str, text: str) -> str:
    """A text whose lines begin with a time."""
    return "".join(f"2026-11-22 {time} {line}\n" for line in text.splitlines())


def test_the_earliest_rank_and_not_the_loudest() -> None:
    loud = "".join(at(f"10:30:{second:02d}", WATCHDOG.format(0)) for second in range(50))
    found = diagnosis(rank_0_log=loud, rank_3_log=at("10:00:05", TRACE + "ValueError: a bad record"))
    first = found.entries[0]
    assert (first.id, first.first.rank, first.first.file, first.first.line) == ("unknown", 3, "rank.3.log", 4)
    assert first.first.text == "ValueError: a bad record"
    assert ids(found) == ["unknown", "nccl_timeout"]
    assert found.entries[1].lines == 50


def test_of_two_causes_the_earlier_whichever_file_is_read_first() -> None:
    early, late = at("10:00:05", MEMORY), at("10:00:09", "OSError: [Errno 28] No space left on device")
    assert ids(diagnosis(rank_0_log=late, rank_1_log=early)) == ["gpu_memory", "disk_full"]
    assert ids(diagnosis(rank_0_log=early, rank_1_log=late)) == ["gpu_memory", "disk_full"]
    assert ids(diagnosis(rank_0_log=at("10:00:15", MEMORY), rank_1_log=late)) == ["disk_full", "gpu_memory"]


def test_without_stamps_what_is_known_comes_first() -> None:
    assert ids(diagnosis(rank_0_log=TRACE + "KeyError: 'x'\n", rank_1_log=MEMORY)) == ["gpu_memory", "unknown"]


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


def test_errors_beside_a_training_that_ended_well() -> None:
    out = steps(5) + "[after training is done]\n"
    assert not diagnosis(
        job_out=out, job_err="ERROR: pip's resolver does not know\nretrying: CUDA out of memory\n"
    ).failed
    assert diagnosis(job_out=out, job_err=TRACE + "ValueError: bad\n").failed


def test_the_rank_that_is_known_to_have_failed_first() -> None:
    logs = {"rank_0_log": TRACE + "KeyError: 'x'\n", "rank_2_log": TRACE + "ValueError: y\n"}
    assert diagnosis(**logs).entries[0].first.rank == 0
    assert diagnosis(Known(failed=True, first_rank=2), **logs).entries[0].first.rank == 2


ENDS = '{{"rank":2,"exit_code":-11,"time":{},"host":"n3"}}\n'


def test_a_time_limit_long_after_a_death_did_not_cause_it() -> None:
    known = Known(failed=True, first_rank=2)
    ended = ENDS.format(1795341600)  # 2026-11-22 10:00:00
    late, soon = LIMIT.format("2026-11-22T11:00:00"), LIMIT.format("2026-11-22T10:00:02")
    assert ids(diagnosis(known, exits_jsonl=ended, slurm_out=late))[0] == "segmentation_fault"
    assert ids(diagnosis(known, exits_jsonl=ended, slurm_out=soon))[0] == "time_limit"


def test_what_a_rank_says_of_its_death_is_shown_rather_than_the_record_of_it() -> None:
    found = diagnosis(exits_jsonl=ENDS.format(1795341600), rank_2_log="Fatal Python error: Segmentation fault\n")
    (entry,) = found.entries
    assert entry.first.file == "rank.2.log"
    assert entry.first.time == 1795341600
    assert entry.ranks == [2]


def test_an_abort_and_timeouts_follow_from_what_was_first() -> None:
    aborts = "terminate called after throwing an instance of 'c10::DistBackendError'\nAborted (core dumped)\n"
    late = "".join(f"{rank}: " + WATCHDOG.format(rank) for rank in range(64)) + aborts
    assert ids(diagnosis(a_log=late)) == ["nccl_timeout", "aborted"]
    assert ids(diagnosis(a_log="3: ValueError: bad\n" + late))[0] == "unknown"
    assert ids(diagnosis(a_log="slurmstepd: error: something new\n" + late))[0] == "suspect"


def test_a_cancelled_job_was_not_short_of_memory() -> None:
    ended, by_whom = '{"rank":0,"exit_code":-9,"time":1795341600}\n', '  "state": "CANCELLED by 1000",\n'
    said = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-22T09:59:58 ***\n"
    found = diagnosis(Known(failed=True, first_rank=0), exits_jsonl=ended, scheduler_json=by_whom, slurm_out=said)
    assert ids(found) == ["cancelled_job", "killed"]
    crashed = "srun: error: n1: task 3: Segmentation fault (core dumped)\n"
    assert ids(diagnosis(slurm_out=crashed + said))[0] == "segmentation_fault"


def test_an_error_before_a_known_cause_is_not_hidden_by_it() -> None:
    text = TRACE + "ValueError: bad\n" + "a line\n" * 10 + MEMORY
    assert ids(diagnosis(a_log=text)) == ["unknown", "gpu_memory"]
    assert (
        ids(diagnosis(a_log=text + "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0\n"))[0]
        == "gpu_memory"
    )


# --- a training that came to no end ---


def test_a_training_without_a_step_or_an_end_is_no_success() -> None:
    begun = "> initializing torch distributed ...\n"
    (entry,) = diagnosis(a_log="a line\n" + begun + "\n", b_log=begun).entries
    assert (entry.id, entry.first.file, entry.first.text) == (
        "no_step",
        "a.log",
        f"the log ends without a step: {begun.strip()}",
    )
    trained = begun + "step 10: train loss 3.21\n"
    assert ids(diagnosis(a_log=trained)) == ["no_end"]
    assert headline(diagnosis(a_log=trained)).endswith("no error, and no end of the training")
    assert not diagnosis(Known(recorded=True), a_log=begun).failed
    bar = "Epoch 0:  4%| | {}/100 [00:10<02:00, 1.2it/s, loss: 3.1]\n"
    assert ids(diagnosis(a_log=bar.format(40))) == ["stopped_early"]
    assert ids(diagnosis(a_log=bar.format(100))) == ["no_end"]  # of an epoch, and nobody says how many there are
    assert not diagnosis(a_log=bar.replace("Epoch 0", "train").format(100)).failed
    assert ids(diagnosis(a_log=bar.format("4" * 5000))) == ["no_end"]  # a damaged line, no step
    assert ids(diagnosis(a_log=bar.format(40) + MEMORY)) == ["gpu_memory"]


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


WELL = "[after training is done] datetime: 2026-11-22 10:00:00\n"
MEGATRON = NUMBERED[0][2] + "\n"
LAST = "".join(MEGATRON.format(number) for number in range(9, 13))


@pytest.mark.parametrize(
    "line",
    [
        "run.sh: Zeile 12: 12345 Getötet                python train.py",
        "Hangup",
        "Loss is nan, exiting.",
        "EXIT CODE: 1",
        "Application 123 exit codes: 137",
        "Job status: Failed. User error: process exited with exit code -9",
        "train.service: Failed with result 'exit-code'.",
        "009 (123.000.000) 2026-11-28 10:00:00 Job was aborted.",
        "1234.batch  OUT_OF_ME+  0:125",
        "1234   CANCELLED by 1000 0:0",
        "trainer-0   0/1     Error    0          5m",
        "job 1234 exceeded hard resource limit h_rt",
        "mypkg.errors.DataExhausted",
        "AssertionError",
        "错误: 磁盘空间不足",
        "+ exit 1",
        "Process exited with code 0xC0000005",
        "timeout: sending signal TERM to command 'python'",
    ],
)
def test_a_bad_end_after_the_last_step_in_whatever_words(line: str) -> None:
    for log in (LAST + line + "\n", LAST + "a line\n" + line + "\n" + "a line\n" * 20):
        first = diagnosis(a_log=log).entries[0].first
        assert line.startswith(log.splitlines()[first.line - 1])


@pytest.mark.parametrize(
    "line",
    ["Training complete!", "All done.", "exited with code 0", "Finished: SUCCESS", "State: COMPLETED (exit code 0)"],
)
def test_what_says_that_all_is_done(line: str) -> None:
    trained = "step 1: loss 2.5\n"
    assert ids(diagnosis(a_log=trained)) == ["no_end"]
    assert not diagnosis(a_log=f"{trained}{line}\n").failed
    before = diagnosis(a_log=f"{trained}ERROR: could not reach the tracker\n{line}\n")
    assert before.failed == ("Training" not in line)
    assert ids(diagnosis(a_log=f"{line}\n{trained * 20}")) == ["no_end"]
    assert ids(diagnosis(a_log=f"{trained}{line}\nworker 3 crashed\n")) == ["suspect"]


@pytest.mark.parametrize(
    "line",
    [
        "Training epoch 1 finished in 312 s",
        "Early stopping counter: 2/10",
        "Evaluation run completed in 12.3 s",
        "Pre-fetch process exited with code 0",
        "2026-11-22 10:00:00 - INFO - Training completed for epoch 1/10",
        "Epoch 1/10: 100%|##########| 100/100 [00:10<00:00]",
        "Loading checkpoint shards: 100%|##########| 4/4 [00:10<00:00]",
        "== Job finished at Sun Nov 22 10:00:00 UTC 2026",
    ],
)
def test_what_says_nothing_of_the_end(line: str) -> None:
    half = "".join(MEGATRON.format(number) for number in range(6))
    assert ids(diagnosis(a_log=half + line + "\n")) == ["stopped_early"]
    assert ids(diagnosis(a_log="step 1: loss 2.5\n" + line + "\n")) == ["no_end"]


@pytest.mark.parametrize(
    "line",
    [
        "Monitored metric val_loss did not improve in the last 3 records. Signaling Trainer to stop.",
        "total average iteration time: 223.4 ms",
    ],
)
def test_the_end_of_lightning_and_of_llm_c(line: str) -> None:
    assert not diagnosis(a_log=f"step 1: loss 2.5\n{line}\n").failed


def test_an_error_before_steps_of_deepspeed_was_survived() -> None:
    step = "[Rank 0] step=1, skipped=0, lr=[0.0001], RunningAvgSamplesPerSec=12.3, CurrSamplesPerSec=12.1\n"
    assert ids(diagnosis(a_log=MEMORY + step * 2))[0] == "gpu_memory"
    assert "gpu_memory" not in ids(diagnosis(a_log=MEMORY + step * 3))


def test_a_summary_after_the_end_is_no_new_step() -> None:
    summary = "wandb: train/loss 2.3\neval_loss = 2.1\n"
    losses = "".join(f"step {number} loss 2.5\n" for number in range(30))
    assert not diagnosis(a_log=losses + "Training complete.\n" + summary).failed
    assert ids(diagnosis(a_log=losses + "Training complete.\n" + losses)) == ["no_end"]


def test_an_end_behind_a_bar_in_one_line() -> None:
    bar = "".join(f"\rEpoch 0: {step}%|#| {step}/100 [00:01<00:02, loss=2.5]" for step in range(1, 101))
    assert not diagnosis(a_log=bar + "`Trainer.fit` stopped: `max_epochs=1` reached.\n").failed


def test_a_training_that_begins_again_takes_back_the_end() -> None:
    assert not diagnosis(a_log=LAST + WELL).failed
    assert ids(diagnosis(a_log=LAST + WELL + "".join(MEGATRON.format(number) for number in range(6)))) == [
        "stopped_early"
    ]
    again = ':::MLLOG {"key": "run_start", "value": null}\n'
    assert ids(diagnosis(a_log=steps(5) + WELL + again)) == ["no_end"]


def test_the_end_of_one_rank_covers_no_error_of_another() -> None:
    error = "".join(f"1: {line}\n" for line in (TRACE + "KeyError: 'x'").splitlines())
    assert ids(diagnosis(a_log=LAST + error + "0: " + WELL)) == ["unknown"]
    assert not diagnosis(a_log=LAST + error.replace("1: ", "0: ") + "0: " + WELL).failed


def test_a_training_that_was_resumed_has_not_come_further_than_it_says() -> None:
    log = "".join(MEGATRON.format(number) for number in (1, 2, 3, 8))  # resumed from a checkpoint at step 7
    assert ids(diagnosis(a_log=log)) == ["stopped_early"]


# --- what was survived ------------------------------------------------------------------------------


def test_training_that_went_on_survived() -> None:
    found = diagnosis(a_log=MEMORY + steps(3) + DONE)
    assert (found.failed, [one.id for one in found.warnings]) == (False, ["gpu_memory"])


def test_an_error_in_a_log_of_unknown_steps_is_survived_where_many_follow() -> None:
    losses = "".join(f"step {number} loss 2.5\n" for number in range(30))
    found = diagnosis(a_log=losses + MEMORY + losses + DONE)
    assert (found.failed, [one.id for one in found.warnings]) == (False, ["gpu_memory"])
    assert ids(diagnosis(a_log=losses + MEMORY + losses[:100] + DONE)) == ["gpu_memory"]


def test_a_rank_that_fails_while_another_prints_its_last_steps() -> None:
    assert ids(diagnosis(a_log=steps(5) + "3: " + MEMORY + steps(2, 5))) == ["gpu_memory"]


def test_the_failure_after_a_restart_counts_and_not_the_one_before() -> None:
    text = "1: " + MEMORY + steps(5) + "2: OSError: [Errno 98] Address already in use\n"
    found = diagnosis(a_log=text)
    assert ids(found) == ["port_taken"]
    assert [one.id for one in found.warnings] == ["gpu_memory"]


def test_the_same_failure_again_is_shown_where_it_was_not_survived() -> None:
    found = diagnosis(a_log=MEMORY + steps(5) + MEMORY)
    assert (found.entries[0].first.line, found.entries[0].lines) == (7, 2)


def test_a_success_covers_what_was_before_it_and_nothing_after() -> None:
    well = ':::MLLOG {"key": "run_stop", "value": null, "metadata": {"status": "success"}}\n'
    assert not diagnosis(a_log=MEMORY + well).failed
    assert ids(diagnosis(a_log=well + "OSError: [Errno 28] No space left on device\n")) == ["disk_full"]


def test_what_is_known_of_a_run_outranks_its_logs() -> None:
    assert not diagnosis(Known(ended_well=True, recorded=True), a_log=MEMORY).failed
    silent = diagnosis(Known(failed=True, recorded=True), a_log=steps(4))
    assert (silent.failed, silent.entries) == (True, [])
    assert headline(silent).endswith("the run failed, and its logs do not say why")


def test_what_is_older_than_the_attempt_belongs_to_another() -> None:
    found = diagnosis(
        Known(failed=True, since=1795341600), slurm_out=at("09:00:00", MEMORY) + at("10:30:00", "Killed")
    )
    assert ids(found) == ["killed"]


def test_losses_that_are_no_number_last_although_training_goes_on() -> None:
    bad = "completed step: {}, seconds: 0.01, loss: nan\n"
    found = diagnosis(a_log=steps(5) + "".join(bad.format(number) for number in range(5, 30)))
    assert ids(found) == ["not_a_number"]
    assert found.entries[0].first.line == 6
    recovered = diagnosis(a_log=steps(5) + bad.format(5) + steps(10, 6) + DONE)
    assert not recovered.failed


def test_what_the_lines_after_a_symptom_say_more_of_it() -> None:
    nccl = "torch.distributed.DistBackendError: NCCL error in: a.cpp:1197, internal error, NCCL version 2.18.1\n"
    more = "ncclInternalError: Internal check failed.\nLast error:\nError : ring 1 does not contain rank 0\n"
    text = "".join(f"[rank0]: {line}\n" for line in (nccl + more).splitlines())
    assert diagnosis(a_log=text).entries[0].first.text.endswith(" ... ring 1 does not contain rank 0")


def test_an_error_without_words_is_shown_with_the_line_that_raised_it() -> None:
    trace = TRACE.replace("    f()\n", "    assert a == b\n           ^^^^^^\n")
    text = "".join(f"[rank1]: {line}\n" for line in (trace + "AssertionError").splitlines())
    assert diagnosis(a_log=text).entries[0].first.text == "AssertionError (assert a == b)"


# --- unknown failures -------------------------------------------------------------------------------


def test_unknown_errors_of_many_ranks_are_grouped() -> None:
    logs = {
        f"rank_{rank}_log": TRACE + f"ValueError: shard {rank} of node{rank}.big at 0x7f{rank:04x} is bad\n"
        for rank in range(8)
    }
    found = diagnosis(**logs, rank_8_log=TRACE + "TypeError: something else\n")
    assert [one.ranks for one in found.entries] == [list(range(8)), [8]]
    assert "8 ranks say so: 0-7" in diagnosis_text(found)


def test_the_errors_of_interleaved_ranks_are_told_apart() -> None:
    lines = [f"{rank}: {line}" for line in (TRACE + "ValueError: bad").splitlines() for rank in (0, 1)]
    found = diagnosis(a_log="\n".join([*lines, "1: done", ""]))
    assert [(one.ranks, one.first.text) for one in found.entries] == [([0, 1], "ValueError: bad")]


def test_an_error_chained_to_a_known_one_is_no_unknown_one() -> None:
    chained = "\nDuring handling of the above exception, another exception occurred:\n\n"
    text = (
        TRACE
        + "ConnectionResetError: [Errno 104] Connection reset by peer\n"
        + chained
        + TRACE
        + "RuntimeError: no\n"
    )
    assert ids(diagnosis(a_log=text)) == ["peer_lost"]


def test_a_line_that_is_marked_as_an_error_counts_where_nothing_else_is_known() -> None:
    found = diagnosis(a_log="slurmstepd: error: something new\n")
    assert (found.failed, ids(found)) == (True, ["suspect"])
    assert ids(diagnosis(a_log="slurmstepd: error: something new\n" + MEMORY)) == ["gpu_memory"]
    marked = "ERROR: could not reach the tracker\n"
    assert ids(diagnosis(a_log=steps(1) + marked)) == ["suspect"]
    assert not diagnosis(a_log=marked + steps(1) + DONE).failed


# --- a rank that was stopped (SIGSTOP), and woken when the job was ended ------------------------------


def frozen(stopped: int) -> dict[str, str]:
    return {f"rank_{rank}_log": (FROZEN / f"rank-{stopped}-stopped-rank-{rank}.log").read_text() for rank in (0, 1)}


@pytest.mark.parametrize("stopped", [0, 1])
def test_the_rank_that_fell_silent_and_not_the_one_that_says_so(stopped: int) -> None:
    for known in (NOTHING, Known(failed=True, first_rank=1 - stopped)):
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
        assert "say so" not in diagnosis_text(found)


def test_ranks_part_after_the_end_but_wait_for_no_collective() -> None:
    ended = steps(5) + "`Trainer.fit` stopped: `max_steps=5` reached.\n"
    warned = "[W1122 10:00:00.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl: Connection reset by peer\n"
    assert not diagnosis(a_log=ended + warned).failed
    assert not diagnosis(
        a_log=ended + "Exception ignored in: <stdout>\nBrokenPipeError: [Errno 32] Broken pipe\n"
    ).failed
    raised = "ClientError: SlowDown (reached max retries: 4)\n"
    assert ids(diagnosis(a_log=ended + TRACE + raised)) == ["unknown"]
    assert diagnosis(a_log=ended, b_err=TRACE + raised).failed
    assert ids(diagnosis(a_log=ended + "a line\n" * 500 + "worker 3 crashed\n")) == ["suspect"]
    assert ids(diagnosis(a_log=ended + "RuntimeError: Connection reset by peer\n")) == ["peer_lost"]
    assert ids(diagnosis(a_log=ended + WATCHDOG.format(0))) == ["nccl_timeout"]
