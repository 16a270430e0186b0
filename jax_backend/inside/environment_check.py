"""Before the other nodes of a job are used: can MaxText, on this one, do what the plan says?

Runs inside MaxText's environment, loaded by worker.py for --check. It asks jaxlib about the flags, imports all that
the worker takes hold of, lets each GPU of this node multiply a matrix, and builds MaxText's configuration from the
run's own arguments. Only one node is there, so the configuration is built for virtual devices; a test builds that of
every recipe.
"""

import contextlib
import ctypes
import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

HERE = Path(__file__).resolve().parent
WITH_TRANSFORMER_ENGINE = "--image= with Transformer Engine for JAX inside, or --set=attention=cudnn_flash_jax"
ANOTHER_IMAGE = "--image= with MaxText 0.2.4 or later inside"
ANOTHER_SETTING = f"--set= with a value that this MaxText takes, or {ANOTHER_IMAGE}"
ON_THAT_NODE = "python launch/doctor.py nodes --site=NAME checks the driver and the GPUs of a site's nodes"

# module -> what the worker rebinds or calls there; MaxText has no public interface for any of it
HOOKS = {
    "maxtext.trainers.pre_train.train": ("initialize", "run", "training_loop_iteration"),
    "maxtext.common.metric_logger": ("MetricLogger.write_metrics",),
    "maxtext.configs.pyconfig": ("initialize",),
    "maxtext.utils.maxtext_utils": ("create_device_mesh",),
    "maxtext.utils.train_utils": ("validate_train_config",),
}
HOOKS_OF_LORA = {
    "maxtext.utils.model_creation_utils": ("get_nnx_create_model_fn",),
    "maxtext.utils.lora_utils": ("apply_lora_to_model",),
}
HOOKS_OF_NSYS = {"maxtext.common.profiler": ("cdll",)}
HOOKS_OF_ATTENTION = {
    "transformer_engine.jax.flax.transformer": ("DotProductAttention",),
    "transformer_engine.jax.attention": ("SequenceDescriptor",),
}
# Its attention for JAX; MaxText 0.2.5, layers/attention_op.py, cudnn_flash_attention.
BROKEN_TRANSFORMER_ENGINES = ("2.12", "2.13")


def look(options, argv_of, packages, kit):
    """{versions, devices}, or the first thing that is wrong."""
    refuse_unknown_flags(kit)
    settings = dict(word.split("=", 1) for word in options.settings)
    versions = kit.installed_versions(packages)
    import_hooks(hooks(settings, options.task), kit)
    versions |= library_versions()
    for name, version in versions.items():
        print(f"{name} {version}", flush=True)
    refuse_broken_attention(settings, versions, kit)
    on_a_node = options.devices * options.tasks_per_node // options.processes
    devices = devices_here(on_a_node, options.tasks_per_node == 1, options.device_name, kit)
    config = configuration(argv_of(options.settings), options.devices, options.processes, on_a_node, kit)
    if settings.get("attention") == "cudnn_flash_te":
        refuse_other_axes(config, kit)
    return {"versions": versions, "devices": devices}


def refuse_unknown_flags(kit):
    """XLA would abort this process, which could then say nothing; so others are asked."""
    asked = kit.load(HERE / "check_request.py")
    words = asked.WORD.findall(os.environ.get("XLA_FLAGS", ""))
    with kit.checking("jaxlib cannot be asked about XLA's flags", ANOTHER_IMAGE):
        wrong = asked.problems(words)
    if wrong:
        said = "; ".join(f"{word}: {why} {asked.jaxlib()}" for word, why in wrong.items())
        raise kit.CheckFailure("XLA refuses its flags", said, "python launch/doctor.py flags FLAGS names successors")


# --- the framework ------------------------------------------------------------------------------


def hooks(settings, task):
    """module -> names, of all that a run with these settings takes hold of."""
    wanted = dict(HOOKS)
    if task == "lora":
        wanted |= HOOKS_OF_LORA
    if settings.get("profiler") == "nsys":
        wanted |= HOOKS_OF_NSYS
    if settings.get("attention") == "cudnn_flash_te":
        wanted |= HOOKS_OF_ATTENTION
    if settings.get("quantization", "").startswith("te_"):
        wanted["transformer_engine.jax"] = ()
    return wanted


def import_hooks(wanted, kit):
    for module, names in wanted.items():
        next_step = WITH_TRANSFORMER_ENGINE if module.startswith("transformer_engine") else ANOTHER_IMAGE
        with kit.checking(f"{module} cannot be imported", next_step):
            found = importlib.import_module(module)
        for name in names:
            place = found
            for part in name.split("."):
                place = getattr(place, part, None)
            if place is None:
                raise kit.CheckFailure(f"{module} has no {name}", f"it is {found.__file__}", ANOTHER_IMAGE)


def refuse_broken_attention(settings, versions, kit):
    found = versions.get("transformer-engine", versions.get("transformer-engine-jax", ""))
    if settings.get("attention") == "cudnn_flash_te" and found.startswith(BROKEN_TRANSFORMER_ENGINES):
        raise kit.CheckFailure(
            f"Transformer Engine {found} is here",
            "its attention for JAX does not work in 2.12 and 2.13",
            "--image= with another Transformer Engine inside, or --set=attention=cudnn_flash_jax",
        )


def refuse_other_axes(config, kit):
    """MaxText goes on in silence where this Transformer Engine does not know all of its axes, and fails in a step."""
    from maxtext.utils import max_utils
    from transformer_engine.jax import sharding

    with max_utils.maybe_get_transformer_engine_context(config):
        known = getattr(sharding, "_GLOBAL_MESH_RESOURCE", True)
    if known is None:
        why = "its version does not fit this MaxText"
        raise kit.CheckFailure("Transformer Engine does not take MaxText's mesh", why, ANOTHER_IMAGE)


def library_versions():
    """CUDA, cuDNN and NCCL, where they can be read, as they number themselves."""
    found = {}
    with contextlib.suppress(ImportError):
        from jax._src.lib import cuda_versions  # jax has no public name for it; None without CUDA

        for name, function in (("cuda", "cuda_runtime_get_version"), ("cudnn", "cudnn_get_version")):
            with contextlib.suppress(AttributeError, RuntimeError):
                found[name] = getattr(cuda_versions, function)()
    nccl = shared_library("libnccl.so.2", "nvidia/nccl/lib/libnccl.so.2")
    number = ctypes.c_int()
    if nccl is not None and nccl.ncclGetVersion(ctypes.byref(number)) == 0:
        found["nccl"] = number.value
    return found


def shared_library(name, in_wheels):
    """The system's, else the one that pip has installed; None where there is neither."""
    for path in (name, *(str(path) for place in sys.path for path in Path(place).glob(in_wheels))):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(path)
    return None


# --- this node's devices ------------------------------------------------------------------------


def devices_here(expected, alone, names, kit):
    """Those of this node, each of which has multiplied a matrix."""
    import jax
    import jax.numpy as jnp

    with kit.checking(f"jax finds no device of {os.environ.get('JAX_PLATFORMS') or 'any kind'} here", ON_THAT_NODE):
        devices = jax.local_devices()
    kit.check_devices([device.device_kind for device in devices], expected, names, alone=alone)
    for device in devices:
        with kit.checking(f"{device} cannot multiply a matrix", ON_THAT_NODE):
            ones = jax.device_put(jnp.ones((128, 128), jnp.bfloat16), device)
            (ones @ ones).block_until_ready()
    return {"count": len(devices), "kind": devices[0].device_kind, "platform": devices[0].platform}


# --- the configuration --------------------------------------------------------------------------


def configuration(argv, devices, processes, on_a_node, kit):
    """MaxText's configuration from a run's own arguments, and its mesh, as if all devices of the job were here."""
    import jax
    from maxtext.configs import pyconfig
    from maxtext.utils import maxtext_utils, train_utils

    every = virtual_devices(devices, devices if "hardware=cpu" in argv else on_a_node)
    mine = every[: devices // processes]
    seen = {
        "devices": every, "device_count": devices, "local_devices": mine, "local_device_count": len(mine),
        "process_count": processes, "process_index": 0,
    }  # fmt: skip
    with mock.patch.multiple(jax, **{name: (lambda *_, value=value: value) for name, value in seen.items()}):
        try:
            config = pyconfig.initialize(argv)
            train_utils.validate_train_config(config)
            maxtext_utils.create_device_mesh(config, every)
        except (Exception, SystemExit) as error:
            errors = kit.load(HERE / "maxtext_errors.py")
            reason = errors.words_of(errors.reason_of(error))
            raise kit.CheckFailure("MaxText refuses the configuration", reason, ANOTHER_SETTING) from error
    return config


def virtual_devices(count, in_a_slice):
    """What MaxText asks of a device; those that NVLink joins are in one slice."""
    return [
        SimpleNamespace(id=i, slice_index=i // in_a_slice, process_index=i, platform="gpu", device_kind="virtual")
        for i in range(count)
    ]
