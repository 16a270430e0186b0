"""What a dumped program holds, on XLA's own text: cut from a real dump, in the forms of a GPU's, and made anew."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jax_backend
from jax_backend.inside import hlo_text
from jax_backend.inside.hlo_text import Collective, Module
from launch.environments import venvs

SAMPLES = Path(__file__).parent / "samples"
CPU = SAMPLES / "fsdp_cpu_after_optimizations.txt"
GPU = SAMPLES / "gpu_after_optimizations.txt"


def parsed(*lines: str, header: str = "HloModule jit_f, num_partitions=8") -> Module:
    """A program whose entry holds these lines."""
    return hlo_text.parse([header + "\n", "\n", "ENTRY %main {\n", *(f"  {line}\n" for line in lines), "}\n"])


def one_of(module: Module, name: str) -> Collective:
    return next(one for one in module.collectives() if one.name == name)


# --- a real dump ----------------------------------------------------------------------------------


def test_all_collectives_of_a_real_dump_are_found_and_those_in_branches_are_marked() -> None:
    found = {one.name: (one.opcode, one.conditional) for one in hlo_text.read_module(CPU).collectives()}
    assert found == {
        "all-gather": ("all-gather", False),  # in the body of the forward loop
        "all-gather.1": ("all-gather", True),  # in a branch of jax.lax.cond
        "all-reduce": ("all-reduce", True),
        "all-reduce.8": ("all-reduce", False),  # in the body of the backward loop
        "all-reduce.2": ("all-reduce", False),
        "all-reduce.3": ("all-reduce", False),
    }


def test_a_real_dump_is_read_to_its_end_and_has_its_names() -> None:
    module = hlo_text.read_module(CPU)
    assert (module.name, module.entry, module.whole) == ("jit_train_step", "main.13_spmd", True)
    lines = [line for line in CPU.read_text().splitlines() if re.match(r"\s+(ROOT )?%", line)]
    assert len(module.names()) == len(lines) == 280


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_dump_that_is_cut_is_not_whole(share: float) -> None:
    text = CPU.read_text()
    assert not hlo_text.parse(text[: int(len(text) * share)].splitlines(keepends=True)).whole


# --- the forms of a GPU's dump --------------------------------------------------------------------


def test_a_start_counts_and_its_done_does_not() -> None:
    module = hlo_text.read_module(GPU)
    assert one_of(module, "all-gather-start.1").opcode == "all-gather"
    assert not [one for one in module.collectives() if "done" in one.name]


def test_an_async_start_is_the_collective_that_it_wraps_and_known_by_either_name() -> None:
    wrapped = one_of(hlo_text.read_module(GPU), "reduce-scatter-start.1")
    assert (wrapped.opcode, wrapped.others) == ("reduce-scatter", ("reduce-scatter.5",))
    assert wrapped.known_in({"reduce-scatter.5"})
    assert wrapped.known_in({"reduce-scatter-start.1"})
    assert not wrapped.known_in({"reduce-scatter.1", "reduce-scatter"})


def test_an_async_start_of_anything_else_is_none() -> None:
    assert "async-start.7" not in {one.name for one in hlo_text.read_module(GPU).collectives()}


def test_what_an_async_start_wraps_counts_once() -> None:
    assert "reduce-scatter.5" not in {one.name for one in hlo_text.read_module(GPU).collectives()}


def test_short_for_an_async_start_is_a_collective_too() -> None:
    assert one_of(hlo_text.read_module(GPU), "reduce-scatter-start.4").opcode == "reduce-scatter"


def test_a_collective_in_a_fusion_is_known_by_the_name_of_the_fusion() -> None:
    assert one_of(hlo_text.read_module(GPU), "reduce-scatter.9").known_in({"address_computation.1"})


def test_what_a_branch_and_the_entry_both_reach_always_runs() -> None:
    module = hlo_text.read_module(GPU)
    assert one_of(module, "all-reduce.20").conditional
    assert one_of(module, "collective-permute-start.2").always


def test_what_nothing_calls_is_left_out() -> None:
    assert "all-reduce.99" not in {one.name for one in hlo_text.read_module(GPU).collectives()}


def test_groups_of_one_device_move_nothing() -> None:
    module = hlo_text.read_module(GPU)
    alone = {one.name for one in module.collectives() if one.alone}
    assert alone == {"all-reduce-start.3", "all-to-all.1"}
    assert not one_of(module, "all-to-all.1").always


def test_words_in_quotes_are_no_calls() -> None:
    """The metadata of loop_multiply_fusion.1 speaks of body=%never_called, that of multiply.4 of an all-to-all."""
    assert "never_called" not in hlo_text.read_module(GPU).reached()


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
    assert not one_of(hlo_text.parse(text.splitlines(keepends=True)), "p-start.1").always


def test_no_groups_on_one_device_are_that_device() -> None:
    line = "ROOT %all-reduce.1 = f32[8]{0} all-reduce(%x), replica_groups={}, to_apply=%add"
    assert one_of(parsed(line, header="HloModule jit_f"), "all-reduce.1").alone
    assert not one_of(parsed(line, header="HloModule jit_f, replica_count=2"), "all-reduce.1").alone


# --- single lines ---------------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", sorted(hlo_text.COLLECTIVES))
def test_every_collective_is_one_plain_and_started(opcode: str) -> None:
    module = parsed(f"%a = f32[8]{{0}} {opcode}(%x)", f"ROOT %b = (f32[8]{{0}}, f32[8]{{0}}) {opcode}-start(%a)")
    assert [(one.name, one.opcode) for one in module.collectives()] == [("a", opcode), ("b", opcode)]


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
    found = hlo_text.parse(f"{line}\n" for line in lines).collectives()
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
    assert [one.always for one in hlo_text.parse(f"{line}\n" for line in lines).collectives()] == [True]


def test_a_text_that_is_no_hlo_holds_nothing_and_is_not_whole() -> None:
    module = hlo_text.parse(["BufferAssignment:\n", "allocation 0: size 4\n", "\x00\xff {\n"])
    assert (module.whole, module.names(), module.collectives()) == (False, set(), [])


def test_a_computation_that_calls_itself_ends() -> None:
    lines = ["HloModule f", "ENTRY %main (p: f32[]) -> f32[] {", "  ROOT %c = f32[] call(%p), to_apply=%main", "}"]
    assert hlo_text.parse(f"{line}\n" for line in lines).reached() == {"main": False}


# --- files ----------------------------------------------------------------------------------------


def test_dumps_are_the_final_programs_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    ours = ["module_0007.jit_f.cpu_after_optimizations.txt", "module_0010.jit_g.sm_9.0_gpu_after_optimizations.txt"]
    others = [
        "module_0007.jit_f.cpu_after_optimizations-buffer-assignment.txt",
        "module_0007.jit_f.before_optimizations.txt",
    ]
    for name in [*reversed(ours), *others]:
        (tmp_path / name).write_text("HloModule jit_x, is_scheduled=true\n")
    assert [path.name for path in hlo_text.dumps(tmp_path)] == ours
    assert [hlo_text.program_id(path) for path in hlo_text.dumps(tmp_path)] == [7, 10]
    assert hlo_text.module_name(tmp_path / ours[0]) == "jit_x"
    assert hlo_text.program_id(GPU) is None


def test_a_large_dump_is_streamed(tmp_path: Path) -> None:
    """Of its text nothing is kept but names: far less memory than the file has bytes."""
    path = tmp_path / "module_0001.jit_f.gpu_after_optimizations.txt"
    padding = "x" * 2000
    with path.open("w") as stream:
        stream.write("HloModule jit_f\n\nENTRY %main (p: f32[]) -> f32[] {\n")
        for number in range(30_000):
            stream.write(f'  %add.{number} = f32[] add(%p, %p), metadata={{op_name="{padding}"}}\n')
        stream.write("}\n")
    program = f"""
import resource, sys
sys.path.insert(0, {str(Path(hlo_text.__file__).parents[1])!r})
from jax_backend import hlo_text
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
module = hlo_text.read_module({str(path)!r})
assert len(module.names()) == 30000
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert int(done.stdout) < path.stat().st_size / 2


# --- HLO that is really lowered -------------------------------------------------------------------

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("fsdp",))
whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("fsdp", None))
def loss(w, x):
    def layer(x, w):
        return jax.nn.relu(x @ jax.lax.with_sharding_constraint(w, whole)), ()
    y, _ = jax.lax.scan(layer, x, w)
    flipped = lambda y: y - jax.lax.with_sharding_constraint(
        jnp.flip(jax.lax.with_sharding_constraint(y, rows), 0), whole).sum()
    y = jax.lax.cond(jnp.sum(y) > 1e9, flipped, lambda y: y, y)
    return jnp.mean(y**2)
weights = NamedSharding(mesh, P(None, "fsdp", None))
@jax.jit
def train_step(w, x):
    value, gradient = jax.value_and_grad(loss)(w, x)
    return jax.lax.with_sharding_constraint(w - 0.1 * gradient, weights), value
w = jax.device_put(jnp.ones((3, 64, 64)), weights)
x = jax.device_put(jnp.ones((16, 64)), rows)
print(float(train_step(w, x)[1]))
"""


@pytest.fixture(scope="module")
def maxtext_python() -> Path:
    """Of MaxText's environment; made here on a fresh machine, which takes minutes."""
    return venvs.ensure(jax_backend.BACKEND.environment("maxtext"), bar=False)


def lower(python: Path, folder: Path) -> None:
    flags = f"--xla_force_host_platform_device_count=8 --xla_dump_to={folder} --xla_dump_hlo_as_text"
    variables = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    subprocess.run([str(python), "-c", PROGRAM], env=variables, check=True, capture_output=True, timeout=300)


@pytest.mark.slow
def test_a_program_lowered_now_has_its_gathers_in_loops_and_branches(maxtext_python: Path, tmp_path: Path) -> None:
    lower(maxtext_python, tmp_path)
    step = next(path for path in hlo_text.dumps(tmp_path) if hlo_text.module_name(path) == "jit_train_step")
    module = hlo_text.read_module(step)
    assert module.whole
    always = {one.opcode for one in module.collectives() if one.always}
    assert {"all-gather", "all-reduce"} <= always  # the weights of a layer; the loss
    assert any(one.conditional for one in module.collectives())
    text = step.read_text()
    written = re.findall(
        r"%([\w.\-]+) = [^\n]*?[\]})] (?:all-gather|all-reduce|reduce-scatter|all-to-all)(?:-start)?\(", text
    )
    assert {one.name for one in module.collectives()} == set(written)
