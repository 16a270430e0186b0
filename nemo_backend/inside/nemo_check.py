"""Before the other nodes of a job are used: can NeMo, on this one, build what the plan says?

Runs inside NeMo's environment, loaded by worker.py for --check. The objects are those of the run, made by the same
code; then NeMo does with them what it does first in a run, up to the first thing that needs the other processes: the
layout, the precision and the overlap reach the model's configuration, and the batch is divided.
"""

from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = (
    "torch", "transformer-engine", "megatron-core", "nemo-toolkit", "lightning", "nvidia-modelopt", "numpy",
)  # fmt: skip
ANOTHER_IMAGE = "--image= with nemo_toolkit 2.5 to 2.7 inside"
ANOTHER_SETTING = "--set= with a value that this NeMo takes, or " + ANOTHER_IMAGE


def look(options, work, objects, kit):
    """{versions, devices}, or the first thing that is wrong."""
    torch_check = kit.load(HERE / "torch_check.py")
    with kit.checking("torch cannot be imported", ANOTHER_IMAGE):
        versions = torch_check.versions(PACKAGES, kit)
    devices = torch_check.devices(options.tasks_per_node, options.device_name, kit)
    with kit.checking("NeMo cannot be imported", ANOTHER_IMAGE):
        build, callbacks, on_cpu = work.prepared()
        for group in build.GROUPS.values():
            build.class_of(group)
    settings = build.grouped(options.settings)
    torch_check.transformer_engine(needing_transformer_engine(settings), kit)
    with kit.checking(f"NeMo {versions.get('nemo-toolkit')} does not take the benchmark's settings", ANOTHER_SETTING):
        given = objects(options, build, callbacks, on_cpu)
        started(given)
    changed = overruled(settings, given["model"].config, build)
    if changed:
        raise kit.CheckFailure("NeMo would train something else", changed[0], ANOTHER_SETTING)
    return {"versions": versions, "devices": devices}


def needing_transformer_engine(settings):
    """What of a run there is no other code for, in NeMo's words."""
    strategy, overlap = settings["trainer.strategy"], settings["comm_overlap"]
    needs = {
        "fp8": settings["trainer.plugins"].get("fp8"),
        "context parallelism": strategy.get("context_parallel_size", 1) > 1,
        "tensor-parallel overlap": overlap.get("tp_comm_overlap"),
        "a CUDA graph": settings["model.config"].get("enable_cuda_graph"),
    }
    return [name for name, wanted in needs.items() if wanted]


def started(given):
    """What NeMo does with its objects on every rank, before the processes meet."""
    from nemo.lightning.pytorch.callbacks.megatron_comm_overlap import MegatronCommOverlapCallback
    from nemo.lightning.pytorch.strategies.utils import setup_parallel_ranks

    trainer, model = given["trainer"], given["model"]
    trainer.strategy.set_world_ranks()
    trainer.strategy.connect(model)
    setup_parallel_ranks(trainer.strategy)
    given["data"].data_sampler.setup(0)
    for callback in trainer.callbacks:
        if isinstance(callback, MegatronCommOverlapCallback):
            callback.setup(trainer, model, "fit")


def overruled(settings, config, build):
    """What the plan says and NeMo does not keep, such as an overlap that it turns off with a warning."""
    wanted = {**build.config_fields(settings, type(config)), **settings["comm_overlap"]}
    wanted |= {name: value for name, value in settings["trainer.plugins"].items() if name.startswith("fp8")}
    return [
        f"{name} is {getattr(config, name)}, the plan says {value}"
        for name, value in wanted.items()
        if hasattr(config, name) and getattr(config, name) != value
    ]
