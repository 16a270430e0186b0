"""Contents and schedule of dumped programs, on XLA's own text: real dumps, and rewritten forms of GPU dumps."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.compilation.compiled import Operation, Schedule
from benchmarks.configs import parse_yaml
from jax_backend.inside import buffers, hlo, schedule
from jax_backend.inside.hlo import Module, axes_along, first_group
from tests.jax_backend.asked import each

SAMPLES = Path(__file__).parent / "samples"
CPU = SAMPLES / "fsdp_cpu_after_optimizations.txt"
GPU = SAMPLES / "gpu_after_optimizations.txt"


def parsed(*lines: str, header: str = "HloModule jit_f, num_partitions=8") -> Module:
    """A program whose entry holds these lines."""
    return hlo.parse([header + "\n", "\n", "ENTRY %main {\n", *(f"  {line}\n" for line in lines), "}\n"])


# --- collectives ----------------------------------------------------------------------------------


def test_all_collectives_of_a_real_dump_are_found_and_those_in_branches_are_marked() -> None:
    module = hlo.read_module(CPU)
    assert {one.name: (one.kind, one.always) for one in module.collectives()} == {
        "all-gather": ("all-gather", True),  # in the body of the forward loop
        "all-gather.1": ("all-gather", False),  # in a branch of jax.lax.cond
        "all-reduce": ("all-reduce", False),
        "all-reduce.8": ("all-reduce", True),  # in the body of the backward loop
        "all-reduce.2": ("all-reduce", True),
        "all-reduce.3": ("all-reduce", True),
    }
    assert (module.name, module.entry) == ("jit_train_step", "main.13_spmd")
    lines = [line for line in CPU.read_text().splitlines() if re.match(r"\s+(ROOT )?%", line)]
    assert len(module.names()) == len(lines) == 280


def test_the_forms_of_a_gpus_dump() -> None:
    """A start counts, its done does not; a wrapped instruction is also known by its wrapper's name.

    The metadata of loop_multiply_fusion.1 speaks of body=%never_called, that of multiply.4 of an all-to-all: words in
    quotes are not calls.
    """
    found = {one.name: one for one in hlo.read_module(GPU).collectives()}
    assert {name: one.always for name, one in found.items()} == {
        "all-gather-start.1": True,
        "reduce-scatter.5": True,
        "reduce-scatter-start.4": True,
        "reduce-scatter.9": True,
        "all-reduce-start.3": False,  # groups of one device
        "all-to-all.1": False,
        "all-reduce.20": False,  # in a branch
        "collective-permute-start.2": True,  # a branch and the entry reach it
    }
    assert found["reduce-scatter-start.4"].kind == "reduce-scatter"
    assert found["reduce-scatter.5"].known_in({"reduce-scatter-start.1"})
    assert found["reduce-scatter.9"].known_in({"address_computation.1"})  # the fusion around it
    assert not found["reduce-scatter.5"].known_in({"reduce-scatter.1", "reduce-scatter"})


@each("permutes", "pairs", "always")
def test_a_permute_must_be_known_where_it_moves_data_of_the_first_device(pairs: str, always: bool) -> None:
    for opcode in ("collective-permute", "collective-permute-start"):
        module = parsed(f"ROOT %p.1 = f32[8]{{0}} {opcode}(%x), channel_id=1, source_target_pairs={pairs}")
        assert [one.always for one in module.collectives()] == [always]


def test_no_groups_on_one_device_are_that_device() -> None:
    line = "ROOT %all-reduce.1 = f32[8]{0} all-reduce(%x), replica_groups={}, to_apply=%add"
    for header, always in (("HloModule jit_f", False), ("HloModule jit_f, replica_count=2", True)):
        assert [one.always for one in parsed(line, header=header).collectives()] == [always]


@pytest.mark.parametrize(
    "attribute", ["true_computation=%branch, false_computation=%x", "branch_computations={%x, %branch}"]
)
@pytest.mark.parametrize(("call", "always"), [("", False), ("  %d = f32[] call(%p), to_apply=%branch\n", True)])
def test_a_branch_that_nothing_else_calls_may_never_run(attribute: str, call: str, always: bool) -> None:
    text = (
        "HloModule jit_f, num_partitions=8\n%branch (p: f32[]) -> f32[] {\n  ROOT %all-reduce.1 = f32[] "
        f"all-reduce(%p)\n}}\nENTRY %main (p: f32[]) -> f32[] {{\n{call}"
        f"  ROOT %c = f32[] conditional(%p, %p, %p), {attribute}\n}}\n"
    )
    assert [one.always for one in hlo.parse(text.splitlines(keepends=True)).collectives()] == [always]


def test_dumps_are_the_final_programs(tmp_path: Path) -> None:
    ours = ["module_0007.jit_f.cpu_after_optimizations.txt", "module_0010.jit_g.sm_9.0_gpu_after_optimizations.txt"]
    for name in [
        *reversed(ours),
        ours[0].replace(".txt", "-buffer-assignment.txt"),
        ours[0].replace("after", "before"),
    ]:
        (tmp_path / name).touch()
    assert [path.name for path in hlo.dumps(tmp_path)] == ours


# --- loops and groups -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "trips"),
    [
        ("", "", 5),
        ("constant(5)", "parameter(1)", None),
        ("compare(%state#0, %limit)", "compare(%limit, %state#0)", None),  # runs while the counter is larger
        ("body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"7"}}', 7),  # the compiler's own
    ],
)
def test_a_loop_runs_as_often_as_its_condition_says(old: str, new: str, trips: int | None) -> None:
    module = hlo.parse((SAMPLES / "loop.txt").read_text().replace(old, new).splitlines())
    assert module.trips(module.computations["main"]["layers"]) == trips


@each("groups", "attributes", "group")
def test_groups_are_read_in_every_way_they_are_written(attributes: str, group: list[int]) -> None:
    assert [*first_group(attributes, 8)] == group


@each("axes_of_groups", "group", "axes")
def test_a_group_lies_along_the_axes_in_which_its_devices_differ(group: list[int], axes: list[str]) -> None:
    assert axes_along(group, {"data": 2, "fsdp": 2, "tensor": 2}) == axes


def test_an_instruction_is_of_the_innermost_layer_that_says_something() -> None:
    text = (SAMPLES / "stack_frames.txt").read_text()
    layers, query = hlo.layers(text), "Attention.query_projection"
    assert layers == {0: "", 1: "", 2: "", 3: "MlpBlock", 4: "MlpBlock", 5: query, 6: "", 7: query, 8: query}
    (line,) = hlo.parse(text.splitlines()).computations["main"].values()
    assert layers[line.frame] == "MlpBlock"


@pytest.mark.parametrize(
    ("name", "writes"), [("stacked", "product"), ("input", "loop"), ("sum", None), ("gone", None)]
)
def test_what_is_kept_of_each_layer_is_known_by_what_writes_it(name: str, writes: str | None) -> None:
    found = hlo.kept(hlo.read_module(SAMPLES / "kept_layers.txt"), name)
    assert (found.name if found else None) == writes


# --- schedules ------------------------------------------------------------------------


CASES: Any = parse_yaml(Path(__file__).parent / "samples" / "schedules.yml")
DEVICES = range(32)


@pytest.mark.parametrize("case", CASES["programs"], ids=lambda case: case["name"])
def test_a_program_is_read_as_its_operations(case: dict[str, Any]) -> None:
    called = "".join(CASES["computations"][name] for name in case.get("calls", []))
    text = f"HloModule jit_f, is_scheduled=true, num_partitions=32\n{called}\nENTRY %main {{\n{case['entry']}}}\n"
    node_of = [device % case["nodes"] if "nodes" in case else device // 8 for device in DEVICES]
    read: Any = schedule.schedule(text, {"data": 2, "fsdp": 16}, {"data": "dp"}, node_of, 100)
    found = msgspec.convert(read, Schedule)
    assert_operations(found.computations["main"], case["operations"])
    if "body" in case:
        assert_operations(found.computations["body"], case["body"])
    assert [words.split()[0] for words in found.not_counted] == case.get("not_counted", [])


def assert_operations(found: list[Operation], expected: list[dict[str, Any]]) -> None:
    """The fields that are stated; the others are not looked at."""
    assert len(found) == len(expected)
    for one, fields in zip(found, expected, strict=True):
        assert {name: getattr(one, name) for name in fields} == fields


# --- the buffers at the peak ----------------------------------------------------------


ASSIGNMENT = (SAMPLES / "peak-buffer-assignment.txt").read_text()
VALUES = (SAMPLES / "peak-buffer-assignment-values.txt").read_text()


def held(**ranges: str) -> list[Any]:
    """Names of values, `_0` for the first part of a tuple, and when each is needed."""
    rows = "".join(
        f"    {name.removesuffix('_0')}{'{0}' if name.endswith('_0') else '{}'}:{span}\n"
        for name, span in ranges.items()
    )
    live = f"HloLiveRange (max 9):\n    0:weights\n  BufferLiveRange:\n{rows}  Live ranges at 1:\n"
    return list(buffers.held_at_the_peak(ASSIGNMENT, VALUES, live))


WEIGHTS = ("weights", 400)


@pytest.mark.parametrize(
    ("ranges", "rows"),
    [
        pytest.param(
            {"kept": "1-5", "gathered_0": "2-3", "same_place": "3-4", "later": "6-8"},
            [WEIGHTS, ("gathered{0}", 400), ("kept", 300)],
            id="values in one place count once, at the moment that takes the most",
        ),
        pytest.param(
            {"kept": "1-5", "across": "4-5"}, [WEIGHTS, ("kept", 300), ("across", 100)], id="each byte counts once"
        ),
        pytest.param(
            {"kept": "1-6", "same_place": "1-2", "gathered_0": "4-5"},
            [WEIGHTS, ("gathered{0}", 400), ("kept", 300)],
            id="of equal moments the one whose values have names",
        ),
        pytest.param({"same_place": "3-4"}, [WEIGHTS, ("same_place", 400)], id="a value that a loop carries"),
        pytest.param(
            {"later": "6-8", "inside": "7-8", "kept": "1-2"}, [("later", 600), WEIGHTS], id="within a larger one"
        ),
    ],
)
def test_what_is_held_at_the_peak(ranges: dict[str, str], rows: list[tuple[str, int]]) -> None:
    found = held(**ranges)
    assert [(one.name.removesuffix("{}"), one.bytes) for one in found] == rows
    assert [one.name for one in found if one.argument] == ["weights{}"]


def test_a_buffer_is_of_the_instruction_that_makes_it() -> None:
    found = {one.name: (one.opcode, one.op_name, one.frame) for one in held(kept="1-6", later="6-8")}
    assert found == {
        "weights{}": ("parameter", "state['model']['w'].value", 0),
        "kept{}": ("fusion", "jvp()/while/mul", 7),
        "later{}": ("fusion", "state['model']['w'].value", 0),  # two steps back: what it is made of
    }
