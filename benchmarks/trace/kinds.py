"""Classify the operations of a trace by kind of work, according to the rules in configs/trace_kinds.yml."""

import re
from pathlib import Path
from typing import Literal, NamedTuple

from benchmarks.configs import read_yaml
from benchmarks.values import Value

FILE_NAME = "trace_kinds.yml"

Kind = Literal["matmul", "attention", "other", "collective", "copy", "none"]
# While operations of several kinds overlap, the time counts for the first of these kinds: compute before the rest.
KINDS: tuple[Kind, ...] = ("matmul", "attention", "other", "collective", "copy")
COLLECTIVE: Kind = "collective"
NONE: Kind = "none"
IDLE = "idle"

# Opcodes that do no work inside a fusion: they are its inputs and outputs.
UNCOUNTED = {"parameter", "constant", "tuple", "get-tuple-element"}
NUMBER = re.compile(r"\.\d+(\.clone|\.remat\d*)*$")


class KindRule(Value, frozen=True):
    """One rule that assigns a kind to operations."""

    kind: Kind
    of: Literal["opcode", "instruction", "kernel", "target", "holds", "holds_only", "scope"]
    pattern: str
    samples: list[str]
    why: str
    source: str


class KindRules(Value, frozen=True):
    """The contents of configs/trace_kinds.yml."""

    date: str
    rules: list[KindRule]


class Instruction(NamedTuple):
    """The properties of an HLO instruction in a program."""

    opcode: str
    holds: frozenset[str] = frozenset()  # the opcodes in the computations that it calls, without UNCOUNTED
    target: str = ""
    scope: str = ""


class Operation(NamedTuple):
    """What identifies an operation: its name in the profiler and, if known, its HLO instruction and module."""

    kernel: str
    hlo_op: str = ""
    module: str = ""


class Kinds:
    """The rules with compiled patterns."""

    def __init__(self, rules: KindRules) -> None:
        self._rules = [(rule, re.compile(rule.pattern)) for rule in rules.rules]

    def of(self, operation: Operation, instruction: Instruction | None) -> Kind:
        """Return the kind of an operation. `instruction` is None if the trace does not contain its HLO."""
        # By default, XLA names an instruction after its opcode: all-gather.86, all-gather-start.1.
        known = instruction or Instruction(opcode=NUMBER.sub("", operation.hlo_op or operation.kernel))
        return next((rule.kind for rule, pattern in self._rules if _fits(rule, pattern, operation, known)), "other")


def read_kinds(configs_root: Path) -> Kinds:
    return Kinds(read_yaml(configs_root / FILE_NAME, KindRules))


def _fits(rule: KindRule, pattern: re.Pattern[str], operation: Operation, instruction: Instruction) -> bool:
    if rule.of == "holds":
        return any(map(pattern.fullmatch, instruction.holds))
    if rule.of == "holds_only":
        return bool(instruction.holds) and all(map(pattern.fullmatch, instruction.holds))
    if rule.of == "instruction" and operation.kernel != operation.hlo_op:
        return False
    if rule.of in ("opcode", "instruction"):
        return pattern.fullmatch(instruction.opcode) is not None
    text = {"kernel": operation.kernel, "target": instruction.target, "scope": instruction.scope}[rule.of]
    return bool(text) and pattern.search(text) is not None
