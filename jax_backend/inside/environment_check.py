"""Check on one node of a job whether MaxText can run the plan, before the other nodes start.

worker.py loads this module inside MaxText's environment for --check. The module checks the flags with jaxlib, imports
everything that the worker hooks, multiplies a matrix on each GPU of this node, and builds MaxText's configuration
from the run's arguments. The configuration uses virtual devices, because only one node of the job runs this check.
"""

import importlib
import os
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

HERE = Path(__file__).resolve().parent
WITH_TRANSFORMER_ENGINE = "pass an --image that has Transformer Engine for JAX, or --set=attention=cudnn_flash_jax"
ANOTHER_IMAGE = "pass --image with MaxText 0.2.4 or later"
ANOTHER_SETTING = f"pass --set with a value that this MaxText accepts, or {ANOTHER_IMAGE}"
ON_THAT_NODE = "check the driver and the GPUs of the nodes with python launch/doctor.py nodes --site=NAME"

# module -> the names in it that the worker replaces or calls; MaxText has no public interface for them
HOOKS = {
    "maxtext.trainers.pre_train.train": ("initialize", "run", "training_loop_iteration"),
    "maxtext.common.metric_logger": ("MetricLogger",),
    "maxtext.configs.pyconfig": ("initialize",),
    "maxtext.utils.maxtext_utils": ("create_device_mesh",),
    "maxtext.utils.train_utils": ("validate_train_config",),
}
# ("task" or a setting, its value) -> the additional hooks of such a run
MORE_HOOKS = {
    ("task", "lora"): {
        "maxtext.utils.model_creation_utils": ("get_nnx_create_model_fn",),
        "maxtext.utils.lora_utils": ("apply_lora_to_model",),
    },
    ("profiler", "nsys"): {"maxtext.common.profiler": ("cdll",)},
    ("attention", "cudnn_flash_te"): {
        "transformer_engine.jax.flax.transformer": ("DotProductAttention",),
        "transformer_engine.jax.attention": ("SequenceDescriptor",),
    },
}
# Versions whose attention for JAX fails (MaxText 0.2.5, layers/attention_op.py, cudnn_flash_attention).
BROKEN_TRANSFORMER_ENGINES = ("2.12", "2.13")


def look(options, worker):
    """Return the versions and devices. Raise CheckFailure for the first problem. `worker` is the module worker.py."""
    kit = worker.kit
    refuse_unknown_flags(kit)
    settings = dict(word.split("=", 1) for word in options.settings)
    versions = kit.installed_versions(worker.PACKAGES)
    import_hooks(hooks(settings, options.task), kit)
    for name, version in versions.items():
        print(f"{name} {version}", flush=True)
    engine = versions.get("transformer-engine", versions.get("transformer-engine-jax", ""))
    if settings.get("attention") == "cudnn_flash_te" and engine.startswith(BROKEN_TRANSFORMER_ENGINES):
        why = "its attention for JAX does not work in versions 2.12 and 2.13"
        raise kit.CheckFailure(f"Transformer Engine {engine} is installed", why, WITH_TRANSFORMER_ENGINE)
    on_a_node = options.devices * options.tasks_per_node // options.processes
    devices = devices_here(on_a_node, options.tasks_per_node == 1, options.device_name, kit)
    configuration(options.settings, options.devices, options.processes, on_a_node, worker)
    return {"versions": versions, "devices": devices}


def refuse_unknown_flags(kit):
    """Check XLA's flags in other processes, because XLA would abort this process without a message."""
    asked = kit.load(HERE / "check_request.py")
    words = os.environ.get("XLA_FLAGS", "").split()
    with kit.checking("jaxlib cannot check XLA's flags", ANOTHER_IMAGE):
        wrong = asked.problems(words)
    if wrong:
        text = "; ".join(f"{word}: {why} {asked.jaxlib()}" for word, why in wrong.items())
        raise kit.CheckFailure(
            "XLA refuses flags in XLA_FLAGS", text, "list successors with python launch/doctor.py flags FLAGS"
        )


# --- the framework ------------------------------------------------------------------------------


def hooks(settings, task):
    """Return module -> names for everything that the worker hooks in a run with these settings."""
    wanted = dict(HOOKS)
    for (name, value), more in MORE_HOOKS.items():
        if {**settings, "task": task}.get(name) == value:
            wanted |= more
    if settings.get("quantization", "").startswith("te_"):
        wanted["transformer_engine.jax"] = ()
    return wanted


def import_hooks(wanted, kit):
    for module, names in wanted.items():
        next_step = WITH_TRANSFORMER_ENGINE if module.startswith("transformer_engine") else ANOTHER_IMAGE
        with kit.checking(f"{module} cannot be imported", next_step):
            found = importlib.import_module(module)
        for name in names:
            if not hasattr(found, name):
                raise kit.CheckFailure(f"{module} has no {name}", f"it is {found.__file__}", ANOTHER_IMAGE)


# --- this node's devices ------------------------------------------------------------------------


def devices_here(expected, alone, names, kit):
    """Multiply a matrix on each device of this node, and describe the devices."""
    import jax
    import jax.numpy as jnp

    with kit.checking(f"jax finds no device of {os.environ.get('JAX_PLATFORMS') or 'any kind'}", ON_THAT_NODE):
        devices = jax.local_devices()
    kit.check_devices([device.device_kind for device in devices], expected, names, alone=alone)
    for device in devices:
        with kit.checking(f"{device} cannot multiply a matrix", ON_THAT_NODE):
            ones = jax.device_put(jnp.ones((128, 128), jnp.bfloat16), device)
            (ones @ ones).block_until_ready()
    return {"count": len(devices), "kind": devices[0].device_kind, "platform": devices[0].platform}


# --- the configuration --------------------------------------------------------------------------


def configuration(settings, devices, processes, on_a_node, worker):
    """Return MaxText's configuration for a run's arguments. Also build its mesh, with all devices of the job."""
    import jax
    from maxtext.configs import pyconfig
    from maxtext.utils import maxtext_utils, train_utils

    # Each virtual device has the attributes that MaxText reads. Devices that NVLink connects are in one slice.
    in_a_slice = devices if "hardware=cpu" in settings else on_a_node
    every = [
        SimpleNamespace(id=i, slice_index=i // in_a_slice, process_index=i, platform="gpu", device_kind="virtual")
        for i in range(devices)
    ]
    mine = every[: devices // processes]
    seen = {
        "devices": every, "device_count": devices, "local_devices": mine, "local_device_count": len(mine),
        "process_count": processes, "process_index": 0,
    }  # fmt: skip
    with mock.patch.multiple(jax, **{name: (lambda *_, value=value: value) for name, value in seen.items()}):
        try:
            config = pyconfig.initialize(worker.argv_of(settings))
            train_utils.validate_train_config(config)
            maxtext_utils.create_device_mesh(config, every)
        except (Exception, SystemExit) as error:
            reason = worker.words_of(worker.reason_of(error))
            raise worker.kit.CheckFailure("MaxText refuses the configuration", reason, ANOTHER_SETTING) from error
    return config
