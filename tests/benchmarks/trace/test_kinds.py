"""The kinds of work of operations: every rule matches its samples, HLO goes before names, a loop is not work."""

from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks.configs import DEFAULT_ROOT, read_yaml
from benchmarks.trace.kinds import FILE_NAME, Instruction, KindRules, Operation, read_kinds
from benchmarks.trace.xplane import messages, read_program
from tests.benchmarks.trace.made import CASES

KINDS = read_kinds(DEFAULT_ROOT)
RULES = read_yaml(DEFAULT_ROOT / FILE_NAME, KindRules).rules
SAMPLES = [(rule.kind, rule.of, sample) for rule in RULES for sample in rule.samples]


def case(of: str, sample: str) -> tuple[Operation, Instruction | None]:
    """An operation that shows a sample in the one place where its rule looks."""
    fusion = Operation("fusion_1", "fusion.1")
    match of:
        case "instruction":
            return Operation(f"{sample}.1", f"{sample}.1"), Instruction(sample)
        case "opcode":
            return Operation("kernel_1", "x.1"), Instruction(sample)
        case "kernel":
            return Operation(sample), None
        case "target":
            return Operation("kernel_1", "custom-call.1"), Instruction("custom-call", target=sample)
        case "scope":
            return fusion, Instruction("fusion", frozenset({"dot"}), scope=sample)
    return fusion, Instruction("fusion", frozenset({sample}))


@pytest.mark.parametrize(("kind", "of", "sample"), SAMPLES)
def test_every_sample_is_of_its_rules_kind(kind: str, of: str, sample: str) -> None:
    assert KINDS.of(*case(of, sample)) == kind


@pytest.mark.parametrize("row", CASES["kinds"], ids=lambda row: row["kernel"])
def test_kinds_in_particular(row: dict[str, Any]) -> None:
    operation = Operation(row["kernel"], row["kernel"] if row["hlo_op"] is None else row["hlo_op"])
    known = Instruction(row["opcode"], frozenset(row["holds"])) if row["opcode"] else None
    assert KINDS.of(operation, known) == row["kind"]


# --- HLO ----------------------------------------------------------------------------------------


def hlo(*computations: Mapping[str, tuple[Any, ...]]) -> bytes:
    """Return computations, numbered from 1, of name -> (opcode, dimensions, called numbers)."""
    program = messages()["HloProto"]()
    program.hlo_module.name = "jit_f"
    for number, instructions in enumerate(computations, 1):
        computation = program.hlo_module.computations.add(id=number)
        for name, (opcode, dimensions, *called) in instructions.items():
            made = computation.instructions.add(name=name, opcode=opcode, called_computation_ids=called)
            made.shape.dimensions.extend(dimensions)
    return bytes(program.SerializeToString())


INNER = {"p": ("parameter", [4]), "d": ("dot", [4])}
OUTER = {"inner": ("call", [4], 1), "add": ("add", [4])}
INDEX = {"i": ("add", []), "c": ("compare", []), "u": ("dynamic-update-slice", [8, 4])}


@pytest.mark.parametrize(
    ("computations", "holds"),
    [
        pytest.param([INNER, OUTER, {"fusion.1": ("fusion", [4], 2)}], {"call", "dot", "add"}, id="all the way down"),
        pytest.param(
            [INDEX, {"fusion.1": ("fusion", [8, 4], 1)}], {"dynamic-update-slice"}, id="no index arithmetic"
        ),
        pytest.param([{"s": ("reduce", [])}, {"fusion.1": ("fusion", [], 1)}], {"reduce"}, id="but a sum"),
        pytest.param(
            [{"f": ("fusion", [1], 1)}, {"fusion.1": ("fusion", [1], 1, 99)}], {"fusion"}, id="one that ends"
        ),
    ],
)
def test_what_a_fusion_holds(computations: list[dict[str, tuple[Any, ...]]], holds: set[str]) -> None:
    name, program = read_program(hlo(*computations))
    assert (name, program["fusion.1"].holds) == ("jit_f", holds)
