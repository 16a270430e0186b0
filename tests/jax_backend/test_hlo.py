"""What a dumped program holds, on XLA's own text: cut from a real dump, in the forms of a GPU's, and made anew."""

import re
from pathlib import Path

import pytest

from jax_backend.inside import hlo
from jax_backend.inside.hlo import Account, Collective, Finished, Module, account, axes_along, finished, first_group

SAMPLES = Path(__file__).parent / "samples"
CPU = SAMPLES / "fsdp_cpu_after_optimizations.txt"
GPU = SAMPLES / "gpu_after_optimizations.txt"


def parsed(*lines: str, header: str = "HloModule jit_f, num_partitions=8") -> Module:
    """A program whose entry holds these lines."""
    return hlo.parse([header + "\n", "\n", "ENTRY %main {\n", *(f"  {line}\n" for line in lines), "}\n"])


def one_of(module: Module, name: str) -> Collective:
    return next(one for one in module.collectives() if one.name == name)


# --- a real dump ----------------------------------------------------------------------------------


def test_all_collectives_of_a_real_dump_are_found_and_those_in_branches_are_marked() -> None:
    found = {one.name: (one.opcode, one.conditional) for one in hlo.read_module(CPU).collectives()}
    assert found == {
        "all-gather": ("all-gather", False),  # in the body of the forward loop
        "all-gather.1": ("all-gather", True),  # in a branch of jax.lax.cond
        "all-reduce": ("all-reduce", True),
        "all-reduce.8": ("all-reduce", False),  # in the body of the backward loop
        "all-reduce.2": ("all-reduce", False),
        "all-reduce.3": ("all-reduce", False),
    }


def test_a_real_dump_is_read_to_its_end_and_has_its_names() -> None:
    module = hlo.read_module(CPU)
    assert (module.name, module.entry, module.whole) == ("jit_train_step", "main.13_spmd", True)
    lines = [line for line in CPU.read_text().splitlines() if re.match(r"\s+(ROOT )?%", line)]
    assert len(module.names()) == len(lines) == 280


# --- the forms of a GPU's dump --------------------------------------------------------------------


def test_the_forms_of_a_gpus_dump() -> None:
    """A start counts, its done does not; what an async start wraps counts once, and is known by either name."""
    module = hlo.read_module(GPU)
    names = {one.name for one in module.collectives()}
    assert not [name for name in names if "done" in name]
    assert not names & {"reduce-scatter.5", "async-start.7", "all-reduce.99"}  # wrapped; of no collective; not called
    wrapped = one_of(module, "reduce-scatter-start.1")
    assert (wrapped.opcode, wrapped.others) == ("reduce-scatter", ("reduce-scatter.5",))
    assert wrapped.known_in({"reduce-scatter.5"}) and wrapped.known_in({"reduce-scatter-start.1"})
    assert not wrapped.known_in({"reduce-scatter.1", "reduce-scatter"})
    assert one_of(module, "reduce-scatter-start.4").opcode == "reduce-scatter"
    assert one_of(module, "reduce-scatter.9").known_in({"address_computation.1"})  # the fusion around it
    assert one_of(module, "all-reduce.20").conditional
    assert one_of(module, "collective-permute-start.2").always  # a branch and the entry reach it
    assert {one.name for one in module.collectives() if one.alone} == {"all-reduce-start.3", "all-to-all.1"}


def test_words_in_quotes_are_no_calls() -> None:
    """The metadata of loop_multiply_fusion.1 speaks of body=%never_called, that of multiply.4 of an all-to-all."""
    assert "never_called" not in hlo.read_module(GPU).reached()


# --- groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "alone"),
    [
        ("{{0},{1},{2}}", True),
        ("{{0,1},{2,3}}", False),
        ("{{0,1,2,3,4,5,6,7}}", False),
        ("{}", False),
        ("[8,1]<=[8]", True),
        ("[1,8]<=[8]", False),
        ("[4,2]<=[2,4]T(1,0)", False),
        ("mesh['data'=1,'fsdp'=8] {'fsdp'}", False),
        ("mesh['data'=1,'fsdp'=8] {'data'}", True),
        ("mesh['data'=1,'fsdp'=8] {'data','fsdp'}", False),
        ("mesh['fsdp'=8] {'fsdp':(1)2}", False),
    ],
)
def test_all_ways_of_writing_groups_are_read(groups: str, alone: bool) -> None:
    module = parsed(f"ROOT %all-reduce.1 = f32[8]{{0}} all-reduce(%x), replica_groups={groups}, to_apply=%add")
    assert one_of(module, "all-reduce.1").alone is alone


@pytest.mark.parametrize(
    ("pairs", "alone", "always"),
    [
        ("{{0,1},{1,0}}", False, True),
        ("{{1,2},{2,0}}", False, True),
        ("{{0,0},{1,1}}", True, False),
        ("{}", True, False),
        ("{{1,2},{2,3}}", False, False),
        ("{{10,20},{20,10}}", False, False),
        ("{{0,0},{1,2},{2,1}}", False, False),  # on the first device, a copy
        ("[2,2]<=[4]", False, True),  # in a way that is not known
    ],
)
@pytest.mark.parametrize("opcode", ["collective-permute", "collective-permute-start"])
def test_a_permute_must_be_known_where_it_moves_data_of_the_first_device(
    opcode: str, pairs: str, alone: bool, always: bool
) -> None:
    module = parsed(f"ROOT %p.1 = f32[8]{{0}} {opcode}(%x), channel_id=1, source_target_pairs={pairs}")
    assert (one_of(module, "p.1").alone, one_of(module, "p.1").always) == (alone, always)


def test_a_permute_in_an_async_start_moves_what_it_wraps() -> None:
    text = """HloModule jit_f, num_partitions=4
%wrapped (x: f32[8]) -> f32[8] {
  ROOT %p.5 = f32[8]{0} collective-permute(%x), source_target_pairs={{2,3}}
}
ENTRY %main {
  ROOT %p-start.1 = ((f32[8]{0}), f32[8]{0}) async-start(%y), calls=%wrapped
}
"""
    assert not one_of(hlo.parse(text.splitlines(keepends=True)), "p-start.1").always


def test_no_groups_on_one_device_are_that_device() -> None:
    line = "ROOT %all-reduce.1 = f32[8]{0} all-reduce(%x), replica_groups={}, to_apply=%add"
    assert one_of(parsed(line, header="HloModule jit_f"), "all-reduce.1").alone
    assert not one_of(parsed(line, header="HloModule jit_f, replica_count=2"), "all-reduce.1").alone


# --- single lines ---------------------------------------------------------------------------------


def test_shapes_of_any_form_are_passed_over() -> None:
    module = parsed(
        "%a.1 = ((f32[2]{0:T(8,128)(2,1)S(5)}, (u32[], /*index=2*/s32[])), f32[]) all-reduce(%x)",
        "b_2 = f32[] all-gather(f32[2]{0} a)",  # older dumps: no %, and shapes of operands
        "%c = bf16[8,<=16]{1,0} all-to-all(%x#3)",
        "ROOT %d = token[] after-all()",
    )
    assert [one.name for one in module.collectives()] == ["a.1", "b_2", "c"]
    assert "d" in module.names()


@pytest.mark.parametrize(
    "attribute", ["true_computation=%branch, false_computation=%x", "branch_computations={%x, %branch}"]
)
def test_a_branch_is_found_in_either_form_of_a_conditional(attribute: str) -> None:
    lines = [
        "HloModule jit_f, num_partitions=8",
        "%branch (p: f32[]) -> f32[] {",
        "  ROOT %all-reduce.1 = f32[] all-reduce(%p)",
        "}",
    ]
    lines += ["ENTRY %main (p: f32[]) -> f32[] {", f"  ROOT %c = f32[] conditional(%p, %p, %p), {attribute}", "}"]
    found = hlo.parse(f"{line}\n" for line in lines).collectives()
    assert [(one.name, one.conditional) for one in found] == [("all-reduce.1", True)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_branch_that_is_called_elsewhere_always_runs_whichever_comes_first(order: tuple[int, int]) -> None:
    lines = [
        "HloModule f, num_partitions=8",
        "%b (p: f32[]) -> f32[] {",
        "  ROOT %all-reduce.1 = f32[] all-reduce(%p)",
        "}",
    ]
    calls = ["  %c = f32[] conditional(%p, %p), branch_computations={%b}", "  %d = f32[] call(%p), to_apply=%b"]
    lines += ["ENTRY %main (p: f32[]) -> f32[] {", *(calls[number] for number in order), "}"]
    assert [one.always for one in hlo.parse(f"{line}\n" for line in lines).collectives()] == [True]


def test_a_text_that_is_no_hlo_holds_nothing_and_is_not_whole() -> None:
    module = hlo.parse(["BufferAssignment:\n", "allocation 0: size 4\n", "\x00\xff {\n"])
    assert (module.whole, module.names(), module.collectives()) == (False, set(), [])


def test_a_computation_that_calls_itself_ends() -> None:
    lines = ["HloModule f", "ENTRY %main (p: f32[]) -> f32[] {", "  ROOT %c = f32[] call(%p), to_apply=%main", "}"]
    assert hlo.parse(f"{line}\n" for line in lines).reached() == {"main": False}


# --- files ----------------------------------------------------------------------------------------


def test_dumps_are_the_final_programs_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    ours = ["module_0007.jit_f.cpu_after_optimizations.txt", "module_0010.jit_g.sm_9.0_gpu_after_optimizations.txt"]
    others = [
        "module_0007.jit_f.cpu_after_optimizations-buffer-assignment.txt",
        "module_0007.jit_f.before_optimizations.txt",
    ]
    for name in [*reversed(ours), *others]:
        (tmp_path / name).write_text("HloModule jit_x, is_scheduled=true\n")
    assert [path.name for path in hlo.dumps(tmp_path)] == ours
    assert [hlo.program_id(path) for path in hlo.dumps(tmp_path)] == [7, 10]
    assert hlo.module_name(tmp_path / ours[0]) == "jit_x"
    assert hlo.program_id(GPU) is None


# --- what is counted: by hand here, so that each figure can be checked on paper -----------------------

PROGRAM = """\
HloModule jit_train_step, is_scheduled=false, num_partitions=8

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%body (state: (s32[], bf16[16,32], bf16[4,64])) -> (s32[], bf16[16,32], bf16[4,64]) {
  %state = (s32[], bf16[16,32]{1,0}, /*index=2*/bf16[4,64]{1,0}) parameter(0)
  %whole = bf16[32,64]{1,0} all-gather(%state#2), replica_groups=mesh['axis_0'=8] {'axis_0'}, dimensions={0}
  %up = bf16[16,64]{1,0} dot(%state#1, %whole), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="jit(train_step)/jvp()/while/body/dot_general"}
  %grad = bf16[32,64]{1,0} dot(%state#1, %up), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %all = bf16[32,64]{1,0} all-reduce(%grad), replica_groups=[1,8]<=[8], to_apply=%add
  %turned = bf16[32,64]{1,0} copy(%all)
  %mine = bf16[4,64]{1,0} dynamic-slice(%turned, %state#0, %state#0), dynamic_slice_sizes={4,64}
  ROOT %next = (s32[], bf16[16,32]{1,0}, bf16[4,64]{1,0}) tuple(%state#0, %state#1, %mine)
}

%condition (state.1: (s32[], bf16[16,32], bf16[4,64])) -> pred[] {
  %state.1 = (s32[], bf16[16,32]{1,0}, bf16[4,64]{1,0}) parameter(0)
  %limit = s32[] constant(5)
  ROOT %go_on = pred[] compare(%state.1#0, %limit), direction=LT
}

ENTRY %main (weights: bf16[4,64], tokens: bf16[16,32]) -> bf16[] {
  %weights = bf16[4,64]{1,0} parameter(0), metadata={op_name="state[\\'model\\'][\\'logits_dense\\'].value"}
  %tokens = bf16[16,32]{1,0} parameter(1)
  %zero = s32[] constant(0)
  %start = (s32[], bf16[16,32]{1,0}, bf16[4,64]{1,0}) tuple(%zero, %tokens, %weights)
  %layers = (s32[], bf16[16,32]{1,0}, bf16[4,64]{1,0}) while(%start), condition=%condition, body=%body
  %cast = bf16[4,64]{1,0} convert(%weights)
  %head = bf16[32,64]{1,0} all-gather(%cast), replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  %norm = bf16[32]{0} constant({...})
  %scaled = bf16[64]{0} dot(%norm, %head), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %total = f32[64]{0} all-reduce(%scaled), replica_groups=[4,2]<=[8], to_apply=%add
  ROOT %far = f32[64]{0} collective-permute(%total), source_target_pairs={{0,0},{1,3},{3,1}}
}
"""


@pytest.fixture(scope="module")
def counted() -> Account:
    return account(PROGRAM)


def test_a_loop_counts_as_often_as_it_runs(counted: Account) -> None:
    assert counted.partitions == 8
    assert counted.loops == {"layers": 5}
    assert counted.unknown_loops == []


def test_matmuls_are_counted_with_what_they_sum_over(counted: Account) -> None:
    assert [(dot.times, dot.flops, dot.by_a_vector) for dot in counted.dots] == [
        (5, 2 * 16 * 32 * 64, False),
        (5, 2 * 32 * 16 * 64, False),
        (1, 2 * 32 * 64, True),
    ]
    assert counted.dots[0].dtypes == ("bf16", "bf16")


def test_a_collective_is_counted_whole_and_as_a_ring_sends_it(counted: Account) -> None:
    gathered, scattered, head, summed, swapped = counted.moves
    assert (gathered.kind, gathered.times, gathered.buffer_bytes) == ("all-gather", 5, 32 * 64 * 2)
    assert gathered.wire_bytes == 32 * 64 * 2 * 7 / 8
    assert (head.kind, head.times, len(head.group)) == ("all-gather", 1, 8)
    assert (summed.kind, summed.dtype, summed.group) == ("all-reduce", "bf16", (0, 1))
    assert summed.wire_bytes == 2 * 64 * 2 * 1 / 2
    assert (swapped.kind, swapped.group, swapped.wire_bytes) == ("collective-permute", (1, 3), 64 * 4)
    assert scattered.kind == "reduce-scatter"


def test_an_all_reduce_whose_share_alone_is_used_is_a_reduce_scatter(counted: Account) -> None:
    scattered = counted.moves[1]
    assert scattered.wire_bytes == 32 * 64 * 2 * 7 / 8
    whole = account(PROGRAM.replace("tuple(%state#0, %state#1, %mine)", "tuple(%state#0, %all, %mine)"))
    assert whole.moves[1].kind == "all-reduce"
    assert whole.moves[1].wire_bytes == 2 * 32 * 64 * 2 * 7 / 8


def test_a_slice_that_is_more_than_a_device_s_share_makes_no_reduce_scatter() -> None:
    half = PROGRAM.replace("%mine = bf16[4,64]{1,0} dynamic-slice", "%mine = bf16[16,64]{1,0} dynamic-slice")
    assert account(half).moves[1].kind == "all-reduce"


def test_what_is_moved_is_followed_back_to_the_program_s_argument(counted: Account) -> None:
    gathered, _, head, *_ = counted.moves
    assert "logits_dense" in head.argument
    assert "logits_dense" not in gathered.argument


def test_a_loop_without_a_count_is_named_and_counted_once() -> None:
    found = account(PROGRAM.replace("constant(5)", "parameter(1)"))
    assert found.unknown_loops == ["layers"]
    assert {dot.times for dot in found.dots} == {1}


def test_the_compiler_s_own_trip_count_goes_first() -> None:
    known = 'body=%body, backend_config={"known_trip_count":{"n":"7"}}'
    assert account(PROGRAM.replace("body=%body", known)).loops == {"layers": 7}


def test_a_batched_matmul_multiplies_its_batch_once() -> None:
    line = "%b = f32[3,4,6]{2,1,0} dot(%l, %r), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}"
    text = (
        "HloModule m\n\nENTRY %main () -> f32[] {\n"
        "  %l = f32[3,4,5]{2,1,0} parameter(0)\n  %r = f32[3,5,6]{2,1,0} parameter(1)\n"
        f"  {line}, rhs_contracting_dims={{1}}\n}}\n"
    )
    (dot,) = account(text).dots
    assert (dot.flops, dot.by_a_vector) == (2 * 3 * 4 * 5 * 6, False)


@pytest.mark.parametrize(
    ("attributes", "group"),
    [
        ("replica_groups={{0,2,4,6},{1,3,5,7}}, dimensions={0}", (0, 2, 4, 6)),
        ("replica_groups=[2,4]<=[8]", (0, 1, 2, 3)),
        ("replica_groups=[2,4]<=[4,2]T(1,0)", (0, 2, 4, 6)),
        ("replica_groups=[4,2]<=[2,2,2]T(0,2,1)", (0, 2)),
        ("replica_groups=mesh['a'=2,'b'=4] {'a'}", (0, 4)),
        ("replica_groups=mesh['a'=2,'b'=4] {'b'}", (0, 1, 2, 3)),
        ("replica_groups=mesh['a'=8] {'a':(1)2}", (0, 4)),
        ("replica_groups=mesh['a'=8] {'a':(2)4}", (0, 1, 2, 3)),
        ("replica_groups=mesh['a'=2,'b'=4] {'a','b'}", (0, 1, 2, 3, 4, 5, 6, 7)),
        ("replica_groups={}", (0, 1, 2, 3, 4, 5, 6, 7)),
        ("source_target_pairs={{0,0},{1,1}}", (0,)),
        ("source_target_pairs={{0,1},{1,0}}", (0, 1)),
    ],
)
def test_groups_are_read_in_every_way_they_are_written(attributes: str, group: tuple[int, ...]) -> None:
    assert first_group(attributes, 8) == group


def test_a_group_lies_along_the_axes_in_which_its_devices_differ() -> None:
    mesh = {"data": 2, "fsdp": 2, "tensor": 2}
    assert axes_along((0, 1), mesh) == ["tensor"]
    assert axes_along((0, 2), mesh) == ["fsdp"]
    assert axes_along((0, 4), mesh) == ["data"]
    assert axes_along((0, 2, 4, 6), mesh) == ["data", "fsdp"]
    assert axes_along((3,), mesh) == []


def one_line(line: str, more: str = "") -> Account:
    return account(
        f"HloModule m\n\n{more}ENTRY %main (p: f32[8,8], q: pred[]) -> f32[8,8] {{\n"
        f"  %p = f32[8,8]{{1,0}} parameter(0)\n  %q = pred[] parameter(1)\n  {line}\n}}\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        "ROOT %c = f32[8,8]{1,0} convolution(%p, %p), dim_labels=bf_io->bf",
        'ROOT %c = f32[8,8]{1,0} custom-call(%p, %p), custom_call_target="__onednn$matmul"',
    ],
)
def test_a_matmul_in_another_shape_is_named(line: str) -> None:
    (named,) = one_line(line).not_counted
    assert named.startswith("c (")
    assert one_line('ROOT %c = f32[8,8]{1,0} custom-call(%p), custom_call_target="Sharding"').not_counted == []


def test_a_conditional_that_computes_is_named() -> None:
    branch = (
        "%yes (x: f32[8,8]) -> f32[8,8] {\n  %x = f32[8,8]{1,0} parameter(0)\n"
        "  ROOT %d = f32[8,8]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n\n"
    )
    line = "ROOT %c = f32[8,8]{1,0} conditional(%q, %p, %p), true_computation=%yes, false_computation=%no"
    assert one_line(line, branch).not_counted == ["c (which branch of a conditional runs)"]
    assert one_line(line).not_counted == []


def test_a_loop_that_runs_while_the_counter_is_larger_is_not_known() -> None:
    turned = PROGRAM.replace("compare(%state.1#0, %limit)", "compare(%limit, %state.1#0)")
    assert account(turned).unknown_loops == ["layers"]


# --- the finished program -----------------------------------------------------------------------

SCHEDULED = """\
HloModule jit_train_step, is_scheduled=true, num_partitions=8

%shared_out (part: bf16[32,64]) -> bf16[4,64] {
  %part = bf16[32,64]{1,0} parameter(0)
  ROOT %mine = bf16[4,64]{1,0} reduce-scatter(%part), replica_groups=[1,8]<=[8], dimensions={0}, to_apply=%add
}

%fused (x: bf16[16,32]) -> bf16[16,32] {
  %x = bf16[16,32]{1,0} parameter(0)
  ROOT %y = bf16[16,32]{1,0} negate(%x)
}

ENTRY %main (w: bf16[4,64], x: bf16[16,32]) -> bf16[4,64] {
  %w = bf16[4,64]{1,0} parameter(0)
  %x.1 = bf16[16,32]{1,0} parameter(1)
  %gather = (bf16[4,64]{1,0}, bf16[32,64]{1,0}) all-gather-start(%w), replica_groups=[1,8]<=[8], dimensions={0}
  %attention = bf16[16,32]{1,0} custom-call(%x.1), custom_call_target="__cudnn$fmhaSoftmax"
  %whole = bf16[32,64]{1,0} all-gather-done(%gather)
  %up = bf16[16,64]{1,0} custom-call(%attention, %whole), custom_call_target="__cublas$lt$matmul"
  %other = ((bf16[16,32]), bf16[16,32]) async-start(%x.1), calls=%fused
  %scatter = ((bf16[32,64]), bf16[4,64]) async-start(%whole), calls=%shared_out
  %ended = bf16[16,32]{1,0} async-done(%other)
  ROOT %out = bf16[4,64]{1,0} async-done(%scatter)
}
"""


def test_which_collectives_a_kernel_runs_beside() -> None:
    """The gather has attention beside it; between the start and the end of the scatter no kernel is run."""
    assert finished(SCHEDULED) == Finished(
        kernels={"__cudnn$fmhaSoftmax": 1, "__cublas$lt$matmul": 1}, asynchronous=2, overlapped=1
    )


def test_kernels_of_a_loop_are_counted_as_often_as_it_runs() -> None:
    in_the_loop = PROGRAM.replace(
        "  %turned =", '  %kernel = bf16[16,32]{1,0} custom-call(%state#1), custom_call_target="fmha"\n  %turned ='
    )
    assert account(in_the_loop).kernels == {"fmha": 5}
