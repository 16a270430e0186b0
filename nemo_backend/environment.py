"""The virtual environment NeMo's workers run in: which lock files it can be made from, and for which Pythons."""

from pathlib import Path

from benchmarks.backend import EnvironmentSpec, LockFile

ENVIRONMENT_NAME = "nemo-megatron"
HERE = Path(__file__).resolve().parent


# NeMo 2.5.0, Megatron-core 0.14.0, Transformer Engine 2.7.0, PyTorch 2.8, CUDA 12.9: named by the LoRA recipe from
# v25.10 to v25.12 (dgxc-benchmarking, llama3/finetune/metadata.yaml). 25.11 holds NeMo 2.6.0, Megatron-core 0.15.0,
# Transformer Engine 2.9; 26.02 NeMo 2.7.0, 0.16.0, 2.12; from 26.04 on there is no NeMo 2 in it. Source of the
# versions: Megatron-Bridge v0.6.0, docs/releases/software-versions.md, read on 2026-11-23. Not tried here on a GPU;
# the objects of every recipe are built with that NeMo (tests/nemo_backend/test_every_plan.py).
IMAGE = "nvcr.io/nvidia/nemo:25.09"
IMAGE_CUDA = (12, 9)  # 12.9.1, by the same document

CPU_LOCK = LockFile(
    path=HERE / "requirements-cpu.lock",
    python_minimum=(3, 11),
    python_maximum=(3, 11),
    size_gb=2.1,
    offered="torch==2.13.0+cpu",
)
CUDA_LOCK = LockFile(
    path=HERE / "requirements-cuda.lock",
    python_minimum=(3, 11),
    python_maximum=(3, 12),
    size_gb=6.2,
    cuda=(13, 0),
)
# Platform -> the lock files, the preferred first. PyPI's torch is the CUDA build, which serves a CPU as well.
LOCKS = {"cpu": (CPU_LOCK, CUDA_LOCK), "cuda": (CUDA_LOCK,)}


def environment(platform: str = "cpu") -> EnvironmentSpec:
    return EnvironmentSpec(
        name=ENVIRONMENT_NAME,
        locks=LOCKS.get(platform, ()),
        # A recipe, since NeMo turns what fails within nemo.collections.llm itself into a warning.
        import_check="nemo.collections.llm.recipes.llama3_70b",
        # Megatron-core compiles a piece of CUDA when it is imported beside a CUDA build of torch and an nvcc; where
        # there is no GPU to ask for its architecture, torch must be told one. (The worker has it not compiled.)
        image=IMAGE,
        image_cuda=IMAGE_CUDA,
        import_variables={"TORCH_CUDA_ARCH_LIST": "9.0"},
    )
