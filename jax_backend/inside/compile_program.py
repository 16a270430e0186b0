"""Compile MaxText's training step for GPUs that this machine does not have. Report the program's memory and schedule.

This program runs by path inside MaxText's environment, with only the standard library and MaxText:
`python -P compile_program.py --folder=DIR --jobs=FILE`. The file lists the jobs (`Job` of
benchmarks/compilation/compiled.py). JAX's CUDA plugin compiles each job for the job's GPUs and XLA flags, and this
program writes DIR/NUMBER/report.json. It does not train and does not allocate weights, because a compiler needs only
shapes: it compiles a model of 70 billion parameters with one gigabyte of memory.

XLA reads its flags once per process, and aborts the process if it does not know a flag. So this program imports
MaxText once, and compiles each job in a fork in which XLA has not started. The output of a job is in DIR/NUMBER/log.
A failed job writes DIR/NUMBER/failed.json.
"""

import hashlib
import os
import re
import sys
from functools import partial
from pathlib import Path

FINISHED = "*gpu_after_optimizations"  # followed by .txt, by -buffer-assignment.txt or by another ending
TRAINS_ADAPTERS = "lora.enable_lora=true"

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import worker_kit as kit  # noqa: E402

hlo = kit.load(HERE / "hlo.py")
buffers = kit.load(HERE / "buffers.py")
scheduled = kit.load(HERE / "schedule.py")
digests = kit.load(HERE / "program_digest.py")
PACKAGES = ["maxtext", "jax", "jaxlib", "jax-cuda12-plugin", "nvidia-cudnn-cu12", "flax", "optax", "qwix", "aqtp"]


# --- the program --------------------------------------------------------------------------------


class Step:
    """MaxText's training step. Except for the mesh, it is lowered and compiled as in MaxText's train_compile."""

    def __init__(self, settings, gpus):
        import jax
        import maxtext
        from flax.core.spmd import logical_axis_rules
        from maxtext.configs import pyconfig
        from maxtext.trainers.pre_train import train, train_compile
        from maxtext.utils import maxtext_utils, sharding

        jax.config.update("jax_default_prng_impl", "unsafe_rbg")
        if TRAINS_ADAPTERS in settings:
            kit.load(HERE / "adapters.py").install()
        base = str(Path(maxtext.__file__).parent / "configs" / "base.yml")
        config = pyconfig.initialize(["stepmark", base, *settings, *gpus.settings()])
        jax.config.update("jax_use_shardy_partitioner", config.shardy)
        jax.config.update("jax_remove_size_one_mesh_axis_from_type", config.remove_size_one_mesh_axis_from_type)
        self.mesh = maxtext_utils.get_mesh_from_config(config, gpus.devices)
        arguments, keywords, shardings, _, model = train_compile.get_shaped_inputs(self.mesh, config)
        weights, shardings = sharding.maybe_update_params_sharding_with_opt(config, shardings)
        placed = sharding.build_zero1_input_state_mesh_shardings(config, shardings, weights)
        data = sharding.get_input_data_sharding(config, self.mesh)
        function, ins, outs, static, donated = maxtext_utils.get_functional_train_with_signature(
            train.train_step, data, placed, model, config, weights
        )
        self.state = arguments[0]
        tokens = config.micro_batch_size_to_train_on * config.max_target_length / self.mesh.size
        self.expert_rows = int(tokens * config.num_experts_per_tok)
        with jax.set_mesh(self.mesh), logical_axis_rules(config.logical_axis_rules):
            jitted = jax.jit(
                function, in_shardings=ins, out_shardings=outs, static_argnums=static, donate_argnums=donated
            )
            self.lowered = jitted.lower(*arguments, **keywords)
        self.compiled = self.lowered.compile()

    def parameters(self):
        import jax
        from flax import nnx

        return sum(leaf.size for leaf in jax.tree.leaves(nnx.filter_state(self.state["model"], nnx.Param)))


class AbsentGpus:
    """GPUs that this machine does not have. XLA's target configuration describes them."""

    def __init__(self, target, count, nodes):
        from jax.experimental import mesh_utils, topologies
        from maxtext.utils import accelerator_to_spec_map as known

        topology = f"{nodes}x{count // nodes}x1"  # slices x hosts x devices per host: one process per GPU
        self.devices = topologies.get_topology_desc(platform="cuda", target_config=target, topology=topology).devices
        self._nodes = nodes
        known.UserFacingNameToSystemCharacteristics["absent"] = known.SystemCharacteristics(
            "gpu", None, None, None, count // nodes, None
        )
        mesh_utils.create_hybrid_device_mesh = hybrid_mesh
        answer_for(self.devices[0])

    def settings(self):
        return ["compile_topology=absent", f"compile_topology_num_slices={self._nodes}"]


def answer_for(device):
    """Answer tokamax's and jax's questions about the default device, which is a CPU here, for a compiled device."""
    from jax._src.cudnn import fused_attention_stablehlo as attention
    from jax.extend import backend

    def at_least(capability):
        return [*map(int, device.compute_capability.split("."))] >= [*map(int, capability.split("."))]

    backend.get_default_device = lambda: device
    attention.check_compute_capability = at_least


def hybrid_mesh(within, between, devices, **_):
    """Return the devices as a mesh. jax's own function needs slice indices, which absent devices do not have."""
    import numpy as np

    axes = range(len(within))
    grid = np.array(devices).reshape([*between, *within])
    side_by_side = grid.transpose([axis for k in axes for axis in (k, len(within) + k)])
    return side_by_side.reshape([b * w for b, w in zip(between, within, strict=True)])


# --- the report ---------------------------------------------------------------------------------


def report(step, folder, job):
    mesh = {axis: int(size) for axis, size in step.mesh.shape.items() if size > 1}
    memory = step.compiled.memory_analysis()
    text = dump(folder, f"{FINISHED}.txt")
    program = hlo.parse(text.splitlines())
    # The program numbers the devices in the order of the mesh.
    node_of = [device.id // (job.devices // job.nodes) for device in step.mesh.devices.flat]
    schedule = scheduled.schedule(text, mesh, job.words, node_of, step.expert_rows)
    check_exchange(schedule, mesh)
    return {
        "versions": kit.installed_versions(PACKAGES),
        "devices": program.devices,
        "mesh": in_words(mesh, job.words),
        "parameters": step.parameters(),
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "aliased_bytes": memory.alias_size_in_bytes,
        "peak_bytes": memory.peak_memory_in_bytes,
        "held": held(folder, program, hlo.layers(text)),
        "schedule": schedule,
        "step_sha256": digests.of_lowered(step.lowered.compiler_ir("stablehlo").operation),
        "program_sha256": program_digest(text),
        "flags": job.flags,
        "replaced": job.replaced,
    }


def check_exchange(schedule, mesh):
    """End the job if the layout has expert parallelism, but no collective sends tokens to the devices of experts."""
    found = {
        (one.get("kind"), axis)
        for part in schedule["computations"].values()
        for one in part
        for axis in one.get("axes", [])
    }
    if mesh.get("expert", 1) > 1 and not {("all-to-all", "expert"), ("ragged-all-to-all", "expert")} & found:
        raise SystemExit(
            "the layout divides the experts among devices, but the program has no all-to-all between them"
        )


_METADATA = re.compile(r", metadata=\{[^}]*\}")


def program_digest(text):
    """Return a digest of the instructions, without their source locations."""
    begin = re.search(r"^(?:%|ENTRY)", text, re.MULTILINE)
    return hashlib.sha256(_METADATA.sub("", text[begin.start() :]).encode()).hexdigest()


SMALLEST = 1 / 50_000  # the smallest buffer to list, as a share of the peak memory
LAYER_INPUT = "layer input"  # the input of the body of a loop over layers


def held(folder, program, layers):
    """Return the buffers in memory at the peak, except small buffers."""
    rows = buffers.held_at_the_peak(*(dump(folder, f"{FINISHED}-{name}.txt") for name in buffers.FILES))
    smallest = SMALLEST * sum(row.bytes for row in rows)
    return [
        {
            "bytes": row.bytes,
            "shape": row.shape,
            "name": row.name,
            "instruction": row.opcode,
            "op": row.op_name,
            "layer": layers.get(row.frame, ""),
            "part": hlo.part_of(row.op_name),
            "argument": row.argument,
        }
        | origin(hlo.kept(program, row.name.partition("{")[0]), layers)
        for row in rows
        if row.bytes >= smallest
    ]


def origin(line, layers):
    """Return the operation and layer of the instruction that computed a saved value; empty without an instruction."""
    if line is None:
        return {}
    return {"op": LAYER_INPUT if line.opcode == "while" else line.op_name, "layer": layers.get(line.frame, "")}


def in_words(mesh, words):
    """Return the mesh with Stepmark's axis names. Several axes of MaxText can have the same name in Stepmark."""
    found = {}
    for axis, size in mesh.items():
        word = words.get(axis, axis)
        found[word] = found.get(word, 1) * size
    return found


def dump(folder, pattern):
    """Return the text of the largest matching dump. XLA may dump several modules; the step is the largest."""
    found = sorted(folder.rglob(pattern), key=lambda path: path.stat().st_size)
    if not found:
        raise SystemExit(f"XLA wrote no {pattern} to {folder}, so the memory of the step is unknown")
    return found[-1].read_text()


# --- the jobs -----------------------------------------------------------------------------------


def compile_job(job, folder):
    """Compile one job. This must run in a process in which XLA has not started."""
    dumps = folder / "hlo"
    dumps.mkdir()
    asked = f"--xla_dump_to={dumps} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*train_step.*"
    os.environ["XLA_FLAGS"] = f"{job.flags} {asked}".strip()
    gpus = AbsentGpus(job.target, job.devices, job.nodes)
    step = Step(job.settings, gpus)
    found = report(step, dumps, job) | {"target": gpus.devices[0].device_kind}
    kit.write_report(folder, found)


def import_maxtext(_jobs):
    import maxtext.trainers.pre_train.train_compile  # noqa: F401  (before the forks, because it takes 10 s)


def compile_in_a_fork(job, folder):
    return kit.in_a_fork(folder / "log", partial(compile_job, job, folder))


if __name__ == "__main__":
    sys.exit(kit.do_jobs(__doc__, "compiling", import_maxtext, compile_in_a_fork))
