"""Lowers and compiles MaxText's training step, and writes down what is in the program.

Runs by path inside MaxText's environment, on the standard library and MaxText alone, without a GPU:
`python -P compile_program.py --folder=DIR --devices=N [--target=TEXT --nodes=M] -- key=value ...`. With --target
(XLA's message GpuTargetConfigProto) JAX's plugin for CUDA compiles for that GPU, with the flags in XLA_FLAGS;
without, XLA compiles for virtual devices of a CPU. Nothing is trained and no weight is made: shapes are all that the
compiler needs, so a model of 70 billion parameters takes a gigabyte here.

Matmuls and traffic are read from the dump after SPMD partitioning (hlo.py says why); memory, kernels and
overlap are those of the finished program.
"""

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path

DUMPED = "*after_spmd-partitioning*.txt"
# Of MaxText's weights, those outside the layers. In a layer all are moved alike.
WEIGHTS = {"token_embedder": "embedding", "logits_dense": "head", "decoder_norm": "last norm"}
TRAINS_ADAPTERS = "lora.enable_lora=true"
LOOKUPS = ("gather", "scatter-add")  # only the embedding is looked up, and its gradient added to


HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import worker_kit as kit  # noqa: E402

hlo = kit.load(HERE / "hlo.py")
PACKAGES = ["maxtext", "jax", "jaxlib", "jax-cuda12-plugin", "nvidia-cudnn-cu12", "flax", "optax", "qwix", "aqtp"]


class Clock:
    """The seconds of each part of the work."""

    def __init__(self):
        self.seconds = {}
        self._since = time.monotonic()

    def stop(self, part):
        now = time.monotonic()
        self.seconds[part] = now - self._since
        self._since = now


# --- the program --------------------------------------------------------------------------------


class Step:
    """MaxText's training step, lowered and compiled as its own train_compile does, but for the mesh.

    `gpus` are devices that can only be compiled for; without them, those that JAX sees.
    """

    def __init__(self, settings, clock, gpus=None):
        import jax
        import maxtext
        from flax.core.spmd import logical_axis_rules
        from maxtext.configs import pyconfig
        from maxtext.trainers.pre_train import train, train_compile
        from maxtext.utils import maxtext_utils, sharding

        jax.config.update("jax_default_prng_impl", "unsafe_rbg")
        if TRAINS_ADAPTERS in settings:
            kit.load(HERE / "adapters.py").install()
        if gpus is not None:
            settings = [*settings, *gpus.settings()]
        config = pyconfig.initialize(
            ["stepmark", str(Path(maxtext.__file__).parent / "configs" / "base.yml"), *settings]
        )
        jax.config.update("jax_use_shardy_partitioner", config.shardy)
        jax.config.update("jax_remove_size_one_mesh_axis_from_type", config.remove_size_one_mesh_axis_from_type)
        self.mesh = maxtext_utils.get_mesh_from_config(config, gpus and gpus.devices)
        arguments, keywords, shardings, _, model = train_compile.get_shaped_inputs(self.mesh, config)
        weights, shardings = sharding.maybe_update_params_sharding_with_opt(config, shardings)
        placed = sharding.build_zero1_input_state_mesh_shardings(config, shardings, weights)
        data = sharding.get_input_data_sharding(config, self.mesh)
        function, ins, outs, static, donated = maxtext_utils.get_functional_train_with_signature(
            train.train_step, data, placed, model, config, weights
        )
        self.state, self.placed = arguments[0], placed
        clock.stop("set up")
        with jax.set_mesh(self.mesh), logical_axis_rules(config.logical_axis_rules):
            jitted = jax.jit(
                function, in_shardings=ins, out_shardings=outs, static_argnums=static, donate_argnums=donated
            )
            self.lowered = jitted.lower(*arguments, **keywords)
        clock.stop("lower")
        self.compiled = self.lowered.compile()
        clock.stop("compile")

    def parameters(self):
        import jax
        from flax import nnx

        return sum(leaf.size for leaf in jax.tree.leaves(nnx.filter_state(self.state["model"], nnx.Param)))

    def state_bytes(self):
        """Of one device: everything that a step begins with, but for the batch."""
        import jax

        leaves, places = jax.tree.leaves(self.state), jax.tree.leaves(self.placed)
        assert len(leaves) == len(places)
        return sum(bytes_of(leaf, place) for leaf, place in zip(leaves, places, strict=True))


class AbsentGpus:
    """GPUs of another machine: all that is known of them is what a compiler is told."""

    def __init__(self, target, count, nodes):
        from jax.experimental import mesh_utils, topologies
        from maxtext.utils import accelerator_to_spec_map as known

        topology = f"{nodes}x{count // nodes}x1"  # slices x hosts x devices a host: a process for each GPU
        self.devices = topologies.get_topology_desc(platform="cuda", target_config=target, topology=topology).devices
        self._nodes = nodes
        known.UserFacingNameToSystemCharacteristics["absent"] = known.SystemCharacteristics(
            "gpu", None, None, None, count // nodes, None
        )
        mesh_utils.create_hybrid_device_mesh = hybrid_mesh

    def settings(self):
        return ["compile_topology=absent", f"compile_topology_num_slices={self._nodes}"]


def hybrid_mesh(within, between, devices, **_):
    """As jax's own, which asks devices for their slice; absent ones all say 0, and are numbered slice by slice."""
    import numpy as np

    axes = range(len(within))
    grid = np.array(devices).reshape([*between, *within])
    side_by_side = grid.transpose([axis for k in axes for axis in (k, len(within) + k)])
    return side_by_side.reshape([b * w for b, w in zip(between, within, strict=True)])


def bytes_of(leaf, place):
    import jax

    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return 0  # keys of random numbers: some bytes
    size = leaf.dtype.itemsize
    for length in place.shard_shape(leaf.shape):
        size *= length
    return size


# --- what is in it ------------------------------------------------------------------------------


def together(rows, *amounts):
    """Rows that differ in nothing but these amounts as one, with their sums; the largest of the last one first."""
    found = {}
    for row in rows:
        key = tuple(value for name, value in row.items() if name not in amounts)
        before = found.get(key)
        found[key] = row | {name: before[name] + row[name] for name in amounts} if before else row
    return sorted(found.values(), key=lambda row: -row[amounts[-1]])


def matmuls(dots):
    rows = (
        {
            "part": hlo.part_of(dot.op_name),
            "dtype": " x ".join(dict.fromkeys(dot.dtypes)),
            "by_a_vector": dot.by_a_vector,
            "count": dot.times,
            "flops": dot.times * dot.flops,
        }
        for dot in dots
    )
    return together(rows, "count", "flops")


def attention_kernels(kernels):
    """Executions of a step; the kernels of cuDNN alone say in their names what they are."""
    found = {}
    for name, times in kernels.items():
        if "fmha" in name:
            part = "backward" if name.endswith("Backward") else "forward"
            found[part] = found.get(part, 0) + times
    return found


def collectives(moves, mesh, words):
    """Those that do the same thing, together."""
    rows = (
        {
            "kind": move.kind,
            "dtype": move.dtype,
            "group_size": len(move.group),
            "axes": tuple(dict.fromkeys(words.get(axis, axis) for axis in hlo.axes_along(move.group, mesh))),
            "part": hlo.part_of(move.op_name),
            "in_a_loop": "while/body" in move.op_name,
            "what": what_of(move),
            "count": move.times,
            "buffer_bytes": move.times * move.buffer_bytes,
            "wire_bytes": move.times * move.wire_bytes,
        }
        for move in moves
    )
    return together(rows, "count", "buffer_bytes", "wire_bytes")


def what_of(move):
    """The weight that is moved, in Stepmark's words, where it is known; else the operation that needs it."""
    weight = next((word for name, word in WEIGHTS.items() if f"['{name}']" in move.argument.replace("\\", "")), None)
    operation = move.op_name.rsplit("/", 1)[-1]
    return weight or ("embedding" if operation in LOOKUPS else operation)


def report(step, clock, folder, words):
    account = hlo.account(text_of(step, folder))
    mesh = {axis: int(size) for axis, size in step.mesh.shape.items() if size > 1}
    memory = step.compiled.memory_analysis()
    finished = hlo.finished(step.compiled.as_text())
    clock.stop("read")
    return {
        "versions": kit.installed_versions(PACKAGES),
        "devices": account.partitions,
        "mesh": in_words(mesh, words),
        "parameters": step.parameters(),
        "state_bytes": step.state_bytes(),
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "aliased_bytes": memory.alias_size_in_bytes,
        "peak_bytes": memory.peak_memory_in_bytes,
        "attention_kernels": attention_kernels(account.kernels),
        "kernels": finished.kernels,
        "asynchronous": finished.asynchronous,
        "overlapped": finished.overlapped,
        "matmuls": matmuls(account.dots),
        "collectives": collectives([move for move in account.moves if len(move.group) > 1], mesh, words),
        "loops": account.loops,
        "unknown_loops": account.unknown_loops,
        "not_counted": account.not_counted,
        "seconds": clock.seconds,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def in_words(mesh, words):
    """The mesh in Stepmark's words; several axes of MaxText can share out the same."""
    found = {}
    for axis, size in mesh.items():
        word = words.get(axis, axis)
        found[word] = found.get(word, 1) * size
    return found


def text_of(step, folder):
    """For one device nothing is partitioned, and there is no such dump: what was lowered is all."""
    if step.mesh.size == 1:
        return step.lowered.compiler_ir("hlo").get_hlo_module().to_string()
    found = sorted(folder.rglob(DUMPED), key=lambda path: path.stat().st_size)
    if not found:
        raise SystemExit(f"XLA left no {DUMPED} in {folder}: what the step holds cannot be read")
    return found[-1].read_text()  # a program may be compiled in several modules, the step is the largest


def ask_for_dump(folder, devices):
    """Before jax is imported: XLA reads its flags once. `devices` are those of the CPU."""
    os.environ["XLA_FLAGS"] = " ".join(
        [
            os.environ.get("XLA_FLAGS", ""),
            f"--xla_force_host_platform_device_count={devices}",
            f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_pass_re=spmd-partitioning",
            "--xla_dump_hlo_module_re=.*train_step.*",
        ]
    ).strip()


def main(options):
    folder = Path(options.folder)
    dumps = folder / "hlo"
    dumps.mkdir(parents=True, exist_ok=True)
    ask_for_dump(dumps, 1 if options.target else options.devices)
    clock = Clock()
    gpus = AbsentGpus(options.target, options.devices, options.nodes) if options.target else None
    step = Step(options.settings, clock, gpus)
    found = report(step, clock, dumps, dict(word.split("=") for word in options.word))
    found |= {"replaced": json.loads(options.replaced), "notes": options.note}
    found["target"] = gpus.devices[0].device_kind if gpus else ""
    unfinished = folder / "report.json.part"
    unfinished.write_text(json.dumps(found))
    unfinished.replace(folder / "report.json")
    return 0


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True, help="where report.json is written, and the compiler's dumps")
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--target", default="", help="a GpuTargetConfigProto as text; none: a CPU's virtual devices")
    parser.add_argument("--nodes", type=int, default=1, help="that the GPUs are spread over")
    parser.add_argument(
        "--word", action="append", default=[], help="AXIS=WORD: Stepmark's word for an axis of the mesh"
    )
    parser.add_argument("--replaced", default="{}", help="JSON: a setting -> what stands in for it")
    parser.add_argument("--note", action="append", default=[], help="what the report is to say besides")
    parser.add_argument("settings", nargs="*", help="after --: MaxText's own key=value settings")
    return parser.parse_args(argv)


if __name__ == "__main__":
    if os.environ.get("STEPMARK_DIE_WITH_PARENT"):
        kit.die_with_parent()
    sys.exit(main(parse(sys.argv[1:])))
