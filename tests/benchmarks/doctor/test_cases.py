"""What the doctor shows of whole logs (cases.yml), in its order: the first cause first."""

from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from benchmarks.doctor.order import RunContext, diagnose
from tests.benchmarks.doctor.reading import SYMPTOMS, TRACE, evidence, ids, steps

CASES = yaml.safe_load(Path(__file__).with_name("cases.yml").read_text())
MEGATRON = " iteration {:8d}/      12 | elapsed time per iteration (ms): 9.0 | lm loss: 1.0E+00 |\n"


def by(writer: str, text: str) -> str:
    """A text whose lines have a writer."""
    return "".join(f"{writer}{line}\n" for line in text.splitlines())


def watchdog(rank: int) -> str:
    return f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4)\n"


TEXTS = {
    "by": by,
    "at": lambda time, text: by(f"2026-11-22 {time} ", text),
    "trace": TRACE,
    "steps": steps,
    "watchdog": watchdog,
    "memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
    "disk": "OSError: [Errno 28] No space left on device\n",
    "exit_record": '{"rank":2,"exit_code":-11,"time":1795341600,"host":"n3"}\n',  # 2026-11-22 10:00:00
    "limit": "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT {} DUE TO TIME LIMIT ***\n".format,
    "timeouts": "".join(f"{rank}: {watchdog(rank)}" for rank in range(64)),
    "aborts": "terminate called after throwing an instance of 'c10::DistBackendError'\nAborted (core dumped)\n",
    "begun": "> initializing torch distributed ...\n",
    "well": "[after training is done] datetime: 2026-11-22 10:00:00\n",
    "success": ':::MLLOG {"key": "run_stop", "value": null, "metadata": {"status": "success"}}\n',
    "ended": steps(5) + "`Trainer.fit` stopped: `max_steps=5` reached.\n",
    "losses": "".join(f"step {number} loss 2.5\n" for number in range(30)),
    "bar": "".join(f"\rEpoch 0: {step}%|#| {step}/100 [00:01<00:02, loss=2.5]" for step in range(1, 101)),
    "megatron": lambda first, end: "".join(map(MEGATRON.format, range(first, end))),
    "deepspeed": "[Rank 0] step=1, skipped=0, lr=[0.0001], RunningAvgSamplesPerSec=12.3, CurrSamplesPerSec=12.1\n",
    "no_number": lambda first, end: "".join(
        f"completed step: {number}, seconds: 0.01, loss: nan\n" for number in range(first, end)
    ),
    "interleaved": "".join(
        f"{rank}: {line}\n" for line in (TRACE + "ValueError: bad").splitlines() for rank in (0, 1)
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_shown(case: dict[str, Any]) -> None:
    logs = case.get("logs") or {"a.log": case["log"]}
    made = {name: jinja2.Template(text, keep_trailing_newline=True).render(TEXTS) for name, text in logs.items()}
    known = RunContext(**case.get("known", {}))
    found = diagnose([evidence(text, name) for name, text in made.items()], SYMPTOMS, known)
    assert ids(found) == case["shows"]
    assert found.failed == bool(case["shows"])
    assert [one.id for one in found.warnings] == case.get("warns", [])
    if "first" in case:
        first = found.entries[0].first
        assert f"{first.file}:{first.line} {first.rank} {first.text}".endswith(case["first"])
    if "ranks" in case:
        assert found.entries[0].ranks == case["ranks"]
