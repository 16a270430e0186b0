"""nsys's table of kernels -> costs: every form that the table and XLA's ranges have taken."""

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from jax_backend.inside import kernel_table
from jax_backend.inside.kernel_table import Table, TableError

SAMPLES = Path(__file__).parent / "samples"
HEADER = "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Kernel Name"
COSTS = {
    "all-gather-start.1": 7040.5125,
    "cublas-gemm.1": 2103.3102,
    "loop_multiply_fusion.1": 41.216,
    "while.1": 7040.5125,
    "reduce-scatter.5": 5150.2087,
    "reduce-scatter-start.4": 812.0,
    "address_computation.1": 99.1203,
    "collective-permute-start.2": 55.808,
}


def table_of(*rows: str, header: str = HEADER) -> Table:
    return kernel_table.parse([f"{line}\n" for line in (header, *rows)])


def row(in_range: str, average: str = "1000.0") -> str:
    return f'"{in_range}",PushPop,1,1,3,3,3000,{average},kernel_a'


@pytest.mark.parametrize("name", ["nvtx_kern_sum_2025.csv", "nvtxkernsum_2022.csv"])
def test_a_whole_table_has_the_costs_of_its_instructions_and_nothing_else(name: str) -> None:
    table = kernel_table.read(SAMPLES / name)
    assert table.costs == pytest.approx(COSTS)
    assert table.modules == {"jit_train_step": {89}}


@pytest.mark.parametrize(
    ("in_range", "instruction"),
    [
        ("TSL:Thunk:#hlo_op=all-gather-start.1#", "all-gather-start.1"),
        ("Thunk:#hlo_op=all-gather-start.1#", "all-gather-start.1"),
        (":Thunk:#hlo_op=fusion#", "fusion"),
        ("TSL:Thunk:#hlo_op=fusion.3,unique_hlo_op_id=812#", "fusion.3"),
        ("TSL:Thunk:#name=a/b,hlo_op=fusion.3,unique_hlo_op_id=812#", "fusion.3"),
        ("Thunk:#hlo_op=fusion.3,hlo_module=jit_step,program_id=7#", "fusion.3"),
        ("TSL:Thunk:#name=dot[dims=((1,),(0,)), hlo_op=none],hlo_op=fusion.3#", "fusion.3"),
        ("TSL:Thunk:#name=fusion_1#", None),  # the name of the framework's operation, not of an instruction
        ("TSL:XlaCompile:#module=jit_f,hlo_op=fusion.3#", None),
        ("my own Thunk", None),
        ("", None),
    ],
)
def test_the_instruction_is_found_in_every_form_of_a_range(in_range: str, instruction: str | None) -> None:
    assert list(table_of(row(in_range)).costs) == ([instruction] if instruction else [])


@pytest.mark.parametrize(
    ("in_range", "modules"),
    [
        ("TSL:XlaModule:#prefix=jit(f)/jit(main),hlo_module=jit_f.1,program_id=31#", {"jit_f.1": {31}}),
        ("TSL:XlaModule:#hlo_module=jit_f,program_id=31#", {"jit_f": {31}}),
        ("XlaModule:#hlo_module=jit_f#", {"jit_f": set()}),
    ],
)
def test_the_programs_that_ran_are_known(in_range: str, modules: dict[str, set[int]]) -> None:
    table = table_of(row(in_range))
    assert (table.modules, table.costs) == (modules, {})


def test_the_longest_of_an_instructions_kernels_is_its_cost() -> None:
    title = "TSL:Thunk:#hlo_op=gemm.1#"
    assert table_of(row(title, "10"), row(title, "2000"), row(title, "30")).costs == {"gemm.1": 2.0}


def test_a_byte_order_mark_is_no_part_of_a_column(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join([HEADER, row("TSL:Thunk:#hlo_op=a#")]).encode())
    assert kernel_table.read(path).costs == {"a": 1.0}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "no column holds the range; its columns are none"),
        (["SKIPPED: x.sqlite does not contain CUDA kernel data."], "no column holds the range"),
        (["NVTX Range,Style,Med (ns)"], "no column holds the average"),
        (["NVTX Range,Avg (fortnights)", "a,1"], "no column holds the average"),
        ([HEADER, row("TSL:Thunk:#hlo_op=a#", "n/a")], "line 2 has 'n/a'"),
        ([HEADER, row("TSL:Thunk:#hlo_op=a#", "-5")], "line 2 has '-5'"),
        ([HEADER, row("TSL:Thunk:#hlo_op=a#", "nan")], "line 2 has 'nan'"),
        ([HEADER, row("TSL:Thunk:#hlo_op=a#", "inf")], "line 2 has 'inf'"),
        ([HEADER, '"TSL:Thunk:#hlo_op=a#",PushPop'], "line 2 has 'None'"),
    ],
)
def test_a_table_that_cannot_be_read_says_why(lines: list[str], words: str) -> None:
    with pytest.raises(TableError, match=words.replace("(", r"\(").replace(".", r"\.")):
        kernel_table.parse([f"{line}\n" for line in lines])


# --- several ranks --------------------------------------------------------------------------------


def test_a_collective_costs_what_the_last_to_come_waited_and_the_rest_what_the_middle_rank_took() -> None:
    """Rank 2 is slow at all it computes, so the others wait for it in the collective."""
    tables = [
        Table({"all-gather.1": 90.0, "fusion.1": 10.0, "only.here": 4.0}, {}, 3),
        Table({"all-gather.1": 80.0, "fusion.1": 11.0}, {}, 2),
        Table({"all-gather.1": 20.0, "fusion.1": 50.0}, {}, 2),
    ]
    costs = kernel_table.over_ranks(tables, {"all-gather.1"})
    assert costs == {"all-gather.1": 20.0, "fusion.1": 11.0, "only.here": 4.0}


# --- what XLA reads -------------------------------------------------------------------------------


def profiled_instructions() -> type:
    """tensorflow.profiler.ProfiledInstructionsProto, as openxla/xla defines it."""
    file = descriptor_pb2.FileDescriptorProto(name="p.proto", package="t", syntax="proto3")
    message = file.message_type.add(name="ProfiledInstructionsProto")
    cost = message.nested_type.add(name="InstructionCost")
    kind = descriptor_pb2.FieldDescriptorProto
    cost.field.add(name="name", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    cost.field.add(name="cost_us", number=2, type=kind.TYPE_DOUBLE, label=kind.LABEL_OPTIONAL)
    message.field.add(
        name="costs",
        number=1,
        type=kind.TYPE_MESSAGE,
        label=kind.LABEL_REPEATED,
        type_name=".t.ProfiledInstructionsProto.InstructionCost",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call]
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.ProfiledInstructionsProto"))


def test_the_profile_is_text_of_the_message_that_xla_reads() -> None:
    costs = {"fusion.2": 1e-05, "all-gather-start.1": 7040.5, "fusion.10": 0.0, "b": 123456789.123456}
    text = kernel_table.profile_text(costs)
    assert text.splitlines()[0] == 'costs { name: "all-gather-start.1" cost_us: 7040.5 }'
    read = text_format.Parse(text, profiled_instructions()())
    assert {one.name: one.cost_us for one in read.costs} == costs
    assert [one.name for one in read.costs] == sorted(costs)


def test_a_range_with_a_very_long_path_is_read() -> None:
    table = table_of(row("TSL:Thunk:#name=" + "a/" * 100_000 + "b,hlo_op=fusion.3#"))
    assert list(table.costs) == ["fusion.3"]
