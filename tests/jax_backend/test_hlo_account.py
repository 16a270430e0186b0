"""What is counted in the text of a program: by hand here, so that each figure can be checked on paper."""

import pytest

from jax_backend.inside.hlo_account import Account, Finished, account, axes_along, finished, first_group

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


def test_no_program_counts_nothing() -> None:
    assert account("").dots == account("").moves == []


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
