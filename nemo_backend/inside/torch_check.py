"""What the check of a job asks of torch and of its node, whichever program of NVIDIA's runs above them.

Runs inside a framework's environment, loaded by its path; `kit` is benchmarks/inside/worker_kit.py.
"""

CPU = ["cpu"]  # the device names of a benchmark for a CPU


def versions(packages, kit):
    """The packages that are there, and the libraries that torch was built with."""
    import torch

    found = {**kit.installed_versions(packages), "cuda": torch.version.cuda}
    if torch.version.cuda:
        found["cudnn"] = torch.backends.cudnn.version()
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    for name, version in found.items():
        print(f"{name} {version}", flush=True)
    return found


def devices(count, names, kit):
    """The GPUs that one task alone sees on this node: `count` of them, each of a name that the plan knows."""
    import torch

    if [name.lower() for name in names] == CPU:
        return CPU
    with kit.checking("torch cannot use the GPUs", "run nvidia-smi on the node, and compare its CUDA with torch's"):
        if not torch.cuda.is_available():
            torch.cuda.init()  # says why not
    found = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    kit.check_devices(found, count, names)
    return found


def transformer_engine(reasons, kit):
    """Imported where the run needs it: a build that does not fit torch fails here as it would in the run."""
    if not reasons:
        return
    what = f"Transformer Engine cannot be imported, and {reasons[0]} needs it"
    with kit.checking(what, "--image= with an image that holds it, such as NVIDIA's for NeMo"):
        import transformer_engine.pytorch  # noqa: F401
