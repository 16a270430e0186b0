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
    if len(found) < count:
        raise kit.CheckFailure(
            f"the job sees {len(found)} GPUs on this node, the plan uses {count}",
            ", ".join(sorted(set(found))),
            "ask for as many GPUs a node as the plan uses (gres or gpus_per_node of the site), or another --gpus",
        )
    others = sorted({name for name in found if names and name.lower() not in {known.lower() for known in names}})
    if others:
        raise kit.CheckFailure(
            f"the GPUs are {', '.join(others)}",
            f"the benchmark is for {' or '.join(names)}",
            "--hardware= with the GPU that the nodes have, or another --partition",
        )
    return found


def transformer_engine(reasons, kit):
    """Imported where the run needs it: a build that does not fit torch fails here as it would in the run."""
    if not reasons:
        return
    what = f"Transformer Engine cannot be imported, and {reasons[0]} needs it"
    with kit.checking(what, "--image= with an image that holds it, such as NVIDIA's for NeMo"):
        import transformer_engine.pytorch  # noqa: F401
