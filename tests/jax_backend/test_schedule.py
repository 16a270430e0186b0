"""The schedule that is read from a finished program: small programs in XLA's words, with amounts computed by hand."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from benchmarks.compilation.schedule import Operation, Schedule
from jax_backend.inside.schedule import schedule

MESH = {"data": 2, "fsdp": 16}
WORDS = {"data": "dp"}


NODES = [device // 8 for device in range(32)]


def read(entry: str, others: str = "", node_of: Sequence[int] = NODES) -> Schedule:
    """A program for 32 devices, 8 to a node, whose entry holds these lines."""
    text = f"HloModule jit_f, is_scheduled=true, num_partitions=32\n{others}\nENTRY %main {{\n{entry}\n}}\n"
    found: Any = schedule(text, MESH, WORDS, node_of)
    return msgspec.convert(found, Schedule)


def only(read_schedule: Schedule) -> Operation:
    operations = read_schedule.computations[read_schedule.entry]
    assert len(operations) == 1
    return operations[0]


FACTORS = """
  %x = bf16[100,64]{1,0} parameter(0)
  %w = bf16[64,32]{1,0} parameter(1)
"""
SUMMED = '"dot_dimension_numbers":{"lhs_batch_dimensions":[],"lhs_contracting_dimensions":["1"]}'


def test_a_matmul_of_cublas() -> None:
    one = only(
        read(
            FACTORS + "  %custom-call.1 = (bf16[100,32]{1,0}, s8[4194304]{0}) custom-call(%x, %w), "
            'custom_call_target="__cublas$lt$matmul", metadata={op_name="jit(f)/transpose(jvp())/dot_general"}, '
            f'backend_config={{"gemm_backend_config":{{"beta":0,{SUMMED}}}}}'
        )
    )
    assert (one.what, one.dtype, one.part) == ("matmul", "bf16", "backward")
    assert one.flops == 2 * 100 * 32 * 64
    assert one.bytes == 2 * (100 * 64 + 64 * 32 + 100 * 32)  # the workspace is no traffic


def test_a_matmul_in_fp8_that_adds_to_another_result_reads_that_too() -> None:
    one = only(
        read(
            "  %x = f8e4m3fn[100,64]{1,0} parameter(0)\n  %w = f8e5m2[64,32]{1,0} parameter(1)\n"
            "  %c = f32[100,32]{1,0} parameter(2)\n"
            "  %cublas-gemm.1 = (f32[100,32]{1,0}, s8[64]{0}) custom-call(%x, %w, %c), "
            'custom_call_target="__cublas$lt$matmul$f8", '
            f'backend_config={{"gemm_backend_config":{{"beta":1,{SUMMED}}}}}'
        )
    )
    assert (one.dtype, one.bytes) == ("fp8", 100 * 64 + 64 * 32 + 2 * 4 * 100 * 32)


@pytest.mark.parametrize(
    ("target", "mask", "kind", "flops"),
    [
        ("__cudnn$fmhaSoftmax", "NO_MASK", "forward", 2 * 2 * 2 * 4 * 128 * 256 * 64),
        ("__cudnn$fmhaSoftmax", "CAUSAL", "forward", 2 * 2 * 2 * 4 * 128 * 256 * 64 / 2),
        ("__cudnn$fmhaSoftmaxBackward", "CAUSAL", "backward", 5 * 2 * 2 * 4 * 128 * 256 * 64 / 2),
    ],
)
def test_attention_of_cudnn(target: str, mask: str, kind: str, flops: float) -> None:
    """2 sequences, 4 heads, 128 queries, 256 keys, heads of 64."""
    config = (
        '{"cudnn_fmha_backend_config":{"intermediate_tensor_shape":{"dimensions":["2","4","128","256"],'
        f'"element_type":"BF16"}},"mask_type":"{mask}","sliding_window_length":0}}}}'
    )
    found = read(
        "  %q = bf16[2,128,4,64]{3,2,1,0} parameter(0)\n"
        f"  %a = (bf16[2,4,128,64]{{3,1,2,0}}, u8[0]{{0}}) custom-call(%q, %q, %q), "
        f'custom_call_target="{target}", backend_config={config}'
    )
    assert (only(found).what, only(found).kind, only(found).flops) == ("attention", kind, flops)
    assert found.not_counted == []


ASYNC = """
%wrapped (p: bf16[10,64]) -> bf16[160,64] {
  %p = bf16[10,64]{1,0} parameter(0)
  ROOT %all-gather.9 = bf16[160,64]{1,0} all-gather(%p), replica_groups=[2,16]<=[32], dimensions={0}
}
"""
STARTED = """
  %x = bf16[10,64]{1,0} parameter(0)
  %all-gather-start.1 = ((bf16[10,64]), bf16[160,64]) async-start(%x), calls=%wrapped, backend_config={"SYNC"}
  %all-gather-done.1 = bf16[160,64]{1,0} async-done(%all-gather-start.1)
"""


def test_an_asynchronous_collective_is_a_start_and_a_done() -> None:
    found = read(STARTED.replace('"SYNC"', '"is_sync":false'), ASYNC)
    start, done = found.computations["main"]
    assert (start.what, start.kind, start.event, start.name) == (
        "collective",
        "all-gather",
        "start",
        "all-gather-start.1",
    )
    assert (start.axes, start.group_size, start.group_nodes, start.dtype) == (["fsdp"], 16, 2, "bf16")
    assert (start.bytes, start.wire_bytes) == (2 * 160 * 64, 2 * 160 * 64 * 15 / 16)
    assert (done.what, done.event, done.of) == ("collective", "done", "all-gather-start.1")


def test_a_collective_that_xla_marks_as_synchronous_only_runs() -> None:
    one = only(read(STARTED.replace('"SYNC"', '"is_sync":true'), ASYNC))
    assert (one.event, one.name) == ("run", "all-gather-start.1")


def test_a_collective_without_an_asynchronous_form_and_the_word_of_its_axis() -> None:
    one = only(
        read("  %x = f32[32]{0} parameter(0)\n  %r = f32[32]{0} all-reduce(%x), replica_groups=[16,2]<=[2,16]T(1,0)")
    )
    assert (one.event, one.axes, one.group_size, one.group_nodes) == ("run", ["dp"], 2, 2)
    assert (one.bytes, one.wire_bytes) == (128, 2 * 128 / 2)


def test_the_nodes_of_a_group_are_those_of_its_devices_wherever_the_mesh_has_them() -> None:
    line = "  %x = f32[32]{0} parameter(0)\n  %r = f32[32]{0} all-reduce(%x), replica_groups={{0,1},{2,3}}"
    assert only(read(line)).group_nodes == 1
    assert only(read(line, node_of=[device % 4 for device in range(32)])).group_nodes == 2


UPDATE = """
%update (stack: f32[80,100], new: f32[100], at: s32[]) -> f32[80,100] {
  %stack = f32[80,100]{1,0} parameter(0)
  %new = f32[100]{0} parameter(1)
  %at = s32[] parameter(2)
  %row = f32[1,100]{1,0} bitcast(%new)
  ROOT %dynamic-update-slice.1 = f32[80,100]{1,0} dynamic-update-slice(%stack, %row, %at, %at)
}
%slice (stack: f32[80,100], at: s32[]) -> bf16[1,100] {
  %stack = f32[80,100]{1,0} parameter(0)
  %at = s32[] parameter(1)
  %row = f32[1,100]{1,0} dynamic-slice(%stack, %at, %at), dynamic_slice_sizes={1,100}
  ROOT %convert.1 = bf16[1,100]{1,0} convert(%row)
}
%side (a: f32[80,100], b: f32[100], c: s32[]) -> f32[80,100] {
  %a = f32[80,100]{1,0} parameter(0)
  %b = f32[100]{0} parameter(1)
  %c = s32[] parameter(2)
  ROOT %fusion.5 = f32[80,100]{1,0} fusion(%a, %b, %c), kind=kLoop, calls=%update
}
"""
STACK = """
  %stack = f32[80,100]{1,0} parameter(0)
  %new = f32[100]{0} parameter(1)
  %at = s32[] parameter(2)
"""


@pytest.mark.parametrize(
    ("line", "moved"),
    [
        # the new row is read and written, the stack left as it is; the index is read
        ("%f = f32[80,100]{1,0} fusion(%stack, %new, %at), kind=kLoop, calls=%update", 400 + 400 + 4),
        # of the stack only the row is read; it is written in another type
        ("%f = bf16[1,100]{1,0} fusion(%stack, %at), kind=kLoop, calls=%slice", 400 + 200 + 4),
    ],
)
def test_a_fusion_moves_what_it_touches(line: str, moved: float) -> None:
    one = only(read(f"{STACK}  {line}", UPDATE))
    assert (one.what, one.event, one.bytes) == ("fusion", "run", moved)


def test_a_fusion_on_a_side_stream() -> None:
    start, done = read(
        f"{STACK}  %fusion-start.1 = ((f32[80,100], f32[100], s32[]), f32[80,100], u32[]) "
        "async-start(%stack, %new, %at), calls=%side\n"
        "  %fusion-done.1 = f32[80,100]{1,0} async-done(%fusion-start.1)",
        UPDATE,
    ).computations["main"]
    assert (start.what, start.event, start.bytes) == ("fusion", "start", 804)
    assert (done.what, done.event, done.of) == ("fusion", "done", "fusion-start.1")


DOT = """
%gemm (x: bf16[100,64], w: bf16[64,32]) -> bf16[100,32] {
  %x = bf16[100,64]{1,0} parameter(0)
  %w = bf16[64,32]{1,0} parameter(1)
  ROOT %dot.1 = bf16[100,32]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_a_matmul_of_triton_is_a_fusion_around_a_dot() -> None:
    line = "  %gemm_fusion.1 = bf16[100,32]{1,0} fusion(%x, %w), kind=kCustom, calls=%gemm"
    one = only(read(FACTORS + line, DOT))
    assert (one.what, one.name, one.dtype, one.flops) == ("matmul", "gemm_fusion.1", "bf16", 2 * 100 * 32 * 64)
    assert one.bytes == 2 * (100 * 64 + 64 * 32 + 100 * 32)


LOOP = """
%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]{0}) parameter(0)
  %copy.1 = f32[8]{0} copy(%p#1)
}
%cond (p: (s32[], f32[8])) -> pred[] {
  %p = (s32[], f32[8]{0}) parameter(0)
}
"""
COMPARED = """
%less (at: s32[]) -> pred[] {
  %at = s32[] parameter(0)
  %limit = s32[] constant(3)
  ROOT %compare.1 = pred[] compare(%at, %limit), direction=LT
}
%fused_cond (p: (s32[], f32[8])) -> pred[] {
  %p = (s32[], f32[8]{0}) parameter(0)
  ROOT %loop_compare_fusion.1 = pred[] fusion(%p#0), kind=kLoop, calls=%less
}
"""


def test_a_loop_and_its_body() -> None:
    while_line = "  %while.1 = (s32[], f32[8]{0}) while(%t), condition=%cond, body=%body"
    known = read(f'{while_line}, backend_config={{"known_trip_count":{{"n":"39"}}}}', LOOP)
    assert (only(known).what, only(known).body, only(known).trips) == ("loop", "body", 39)
    (copy,) = known.computations["body"]
    assert (copy.what, copy.bytes) == ("copy", 64)
    assert known.not_counted == []

    assert only(read(while_line.replace("%cond", "%fused_cond"), LOOP + COMPARED)).trips == 3

    unknown = read(while_line, LOOP)
    assert only(unknown).trips == 1
    assert unknown.not_counted == ["while.1 (a loop of unknown trip count, counted as one trip)"]


def test_what_is_not_understood_is_listed_and_keeps_its_bytes() -> None:
    found = read(
        "  %x = f32[10]{0} parameter(0)\n"
        '  %c = f32[10]{0} custom-call(%x), custom_call_target="__cublas$lt$groupedMatmul"\n'
        "  %odd.1 = f32[10]{0} fft(%x)"
    )
    assert [(one.what, one.bytes) for one in found.computations["main"]] == [("fusion", 80), ("fusion", 80)]
    assert [words.split()[0] for words in found.not_counted] == ["c", "odd.1"]
    assert "groupedMatmul" in found.not_counted[0]
