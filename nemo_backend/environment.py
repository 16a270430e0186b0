"""The virtual environment NeMo's workers run in: which lock files it can be made from, and for which Pythons."""

from pathlib import Path

from benchmarks.backend import EnvironmentSpec, LockFile

ENVIRONMENT_NAME = "nemo-megatron"
HERE = Path(__file__).resolve().parent


# A container with NeMo 2 inside; not tried here, for want of its registry and of a GPU.
IMAGE = "nvcr.io/nvidia/nemo:25.09"


def environment() -> EnvironmentSpec:
    return EnvironmentSpec(
        name=ENVIRONMENT_NAME,
        locks=(
            LockFile(
                path=HERE / "requirements-cpu.lock",
                python_minimum=(3, 11),
                python_maximum=(3, 11),
                size_gb=2.6,
                offered="torch==2.13.0+cpu",
            ),
            LockFile(
                path=HERE / "requirements-cuda.lock",
                python_minimum=(3, 11),
                python_maximum=(3, 12),
                size_gb=6.6,
            ),
        ),
        # A recipe, since NeMo turns what fails within nemo.collections.llm itself into a warning.
        import_check="nemo.collections.llm.recipes.llama3_70b",
        # Megatron-core compiles a piece of CUDA when it is imported beside a CUDA build of torch and an nvcc; where
        # there is no GPU to ask for its architecture, torch must be told one. (The worker has it not compiled.)
        image=IMAGE,
        import_variables={"TORCH_CUDA_ARCH_LIST": "9.0"},
    )
