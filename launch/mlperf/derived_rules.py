"""The rules for a small copy of a benchmark: the installed package's own, with the copy's values in place of the real
ones. A log that passes them is whole; nothing is said of the real benchmark.
"""

import ast
import re
from pathlib import Path
from typing import Any

from benchmarks.errors import RequestError
from benchmarks.mlperf.definitions import MlperfBenchmark
from benchmarks.mlperf.findings import fixed_settings
from launch.mlperf import package

KEY = re.compile(r"^(?=- KEY:)", re.MULTILINE)
NAME = re.compile(r"^\s+NAME:\s*(\S+)", re.MULTILINE)
LITERAL = re.compile(r"'[^'\n]*'|(?<![\w.'])\d[\d_.]*(?:[eE][+-]?\d+)?")


def derived_rules(small: MlperfBenchmark, real: MlperfBenchmark, ruleset: str, folder: Path) -> Path:
    """Writes them into a folder; the file to begin with, for the compliance checker's --config."""
    source = package.folder() / "compliance_checker" / f"training_{ruleset}"
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("common.yaml", "closed_common.yaml"):
        text = (source / name).read_text(encoding="utf-8")
        text = text.replace(f"'{real.name}'", f"'{real.name}', '{small.name}'")
        (folder / name).write_text(text.replace(f"training_{ruleset}/", f"{folder}/"), encoding="utf-8")
    blocks = KEY.split((source / f"closed_{real.name}.yaml").read_text(encoding="utf-8"))
    old, new = _values(real), _values(small)
    derived = "".join(_block(block, old, new) for block in blocks)
    (folder / f"closed_{small.name}.yaml").write_text(derived, encoding="utf-8")
    return folder / "common.yaml"


def _values(benchmark: MlperfBenchmark) -> dict[str, Any]:
    """What a rule may compare a key with."""
    return {
        **fixed_settings(benchmark),
        "eval_accuracy": benchmark.target.at_most,
        "max_steps": benchmark.max_steps,
        "opt_learning_rate_decay_schedule": benchmark.optimizer.schedule,
        "opt_learning_rate_decay_steps": benchmark.optimizer.decay_and_warmup_steps,
        "evaluation_frequency": benchmark.evaluation.every_samples,
    }


def _block(block: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    """The checks of one key, with each value that differs."""
    named = NAME.search(block)
    key = named[1] if named else ""
    before, now = old.get(key), new.get(key)
    head, check, rest = block.partition("CHECK")
    if before is None or before == now or not check:
        return block
    changed = LITERAL.sub(lambda one: repr(now) if ast.literal_eval(one[0]) == before else one[0], rest)
    if changed == rest or now is None:
        why = f"the installed package does not compare it with {before}, or the copy has no value"
        raise RequestError(f"the rule for {key} cannot be derived", where="mlperf-logging", why=why)
    return head + check + changed
