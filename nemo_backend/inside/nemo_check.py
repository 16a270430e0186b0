"""Check on one node, before the job uses the other nodes, whether NeMo can build the objects of the run.

worker.py loads this module inside NeMo's environment for --check. The check makes the objects with the same code as
the run. NeMo then prepares them as in a run, but stops before it needs other processes: it copies the layout, the
precision and the overlap to the model's configuration, and divides the batch.
"""

PACKAGES = (
    "torch", "transformer-engine", "megatron-core", "nemo-toolkit", "lightning", "nvidia-modelopt", "numpy",
)  # fmt: skip
ANOTHER_IMAGE = "pass --image with nemo_toolkit 2.5 to 2.7"
ANOTHER_SETTING = "pass --set with a value that this NeMo accepts, or " + ANOTHER_IMAGE
CPU = ["cpu"]  # the device names of a benchmark for a CPU


def look(options, work, objects, kit):
    """Return the versions and the devices. Raise CheckFailure for the first problem."""
    with kit.checking("torch cannot be imported", ANOTHER_IMAGE):
        versions = list_versions(PACKAGES, kit)
    devices = find_devices(options.tasks_per_node, options.device_name, kit)
    with kit.checking("NeMo cannot be imported", ANOTHER_IMAGE):
        build, callbacks, on_cpu = work.prepared()
        for group in build.GROUPS.values():
            build.class_of(group)
    settings = build.grouped(options.settings)
    import_transformer_engine(needing_transformer_engine(settings), kit)
    with kit.checking(f"NeMo {versions.get('nemo-toolkit')} refuses the benchmark's settings", ANOTHER_SETTING):
        given = objects(options, build, callbacks, on_cpu)
        started(given)
    changed = overruled(settings, given["model"].config, build)
    if changed:
        raise kit.CheckFailure("NeMo would train with different settings", changed[0], ANOTHER_SETTING)
    return {"versions": versions, "devices": devices}


def needing_transformer_engine(settings):
    """Return the settings of a run that need Transformer Engine."""
    strategy, overlap = settings["trainer.strategy"], settings["comm_overlap"]
    needs = {
        "fp8": settings["trainer.plugins"].get("fp8"),
        "context parallelism": strategy.get("context_parallel_size", 1) > 1,
        "tensor-parallel overlap": overlap.get("tp_comm_overlap"),
        "a CUDA graph": settings["model.config"].get("enable_cuda_graph"),
    }
    return [name for name, wanted in needs.items() if wanted]


def started(given):
    """Prepare the objects as NeMo does on every rank before the processes join."""
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
    """Return a sentence for each setting that NeMo changed, such as an overlap that it turned off with a warning."""
    wanted = {**build.config_fields(settings, type(config)), **settings["comm_overlap"]}
    wanted |= {name: value for name, value in settings["trainer.plugins"].items() if name.startswith("fp8")}
    return [
        f"{name} is {getattr(config, name)}, but the plan has {value}"
        for name, value in wanted.items()
        if hasattr(config, name) and getattr(config, name) != value
    ]


# --- checks of torch and the node, which bridge_check.py also uses ---------------------------------


def list_versions(packages, kit):
    """Print and return the versions of the packages, and of the libraries that torch was built with."""
    import torch

    found = {**kit.installed_versions(packages), "cuda": torch.version.cuda}
    if torch.version.cuda:
        found["cudnn"] = torch.backends.cudnn.version()
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    for name, version in found.items():
        print(f"{name} {version}", flush=True)
    return found


def find_devices(count, names, kit):
    """Return the GPUs that one task sees on this node. Fail unless it sees `count` GPUs with names in the plan."""
    import torch

    if [name.lower() for name in names] == CPU:
        return CPU
    with kit.checking("torch cannot use the GPUs", "run nvidia-smi on the node, and compare its CUDA with torch's"):
        if not torch.cuda.is_available():
            torch.cuda.init()  # raises an error with the reason
    found = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    kit.check_devices(found, count, names)
    return found


def import_transformer_engine(reasons, kit):
    """Import Transformer Engine if the run needs it. Importing a build for another torch fails."""
    if not reasons:
        return
    what = f"Transformer Engine cannot be imported, and {reasons[0]} needs it"
    with kit.checking(what, "pass --image with Transformer Engine, such as NVIDIA's for NeMo"):
        import transformer_engine.pytorch  # noqa: F401
