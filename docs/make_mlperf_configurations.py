"""Records what the public MLPerf configurations export, for tests/nemo_backend/test_mlperf_configurations.py.

    python docs/make_mlperf_configurations.py TRAINING_RESULTS_V4.1 TRAINING_RESULTS_V5.1

Each argument is a checkout of mlcommons/training_results_vX. Every configuration is sourced by bash in an empty
environment, and what it exports is written down; only names and values are kept.
"""

import subprocess
import sys
from pathlib import Path

import yaml

OUT = Path(__file__).resolve().parents[1] / "tests/nemo_backend/mlperf_configurations.yml"
LORA = "benchmarks/llama2_70b_lora/implementations"
PRETRAINING = "benchmarks/llama31_8b/implementations/nemo"
# (recipe, hardware, GPUs) -> (release, the file). Where NVIDIA handed in no file of a scale, it is one of NVIDIA's
# files that a submitter with NVIDIA's implementation handed in.
FILES = {
    ("mlperf_llama2_70b_lora_h100", "h100", 8): (
        "4.1",
        f"NVIDIA/{LORA}/eos_ngc24.09_nemo/config_DGXH100_1x8x4xtp4pp1cp1.sh",
    ),
    ("mlperf_llama2_70b_lora_b200", "b200", 8): ("5.1", f"Dell/{LORA}/nemo/config_DGXB200_1x8x1xtp1pp1cp1.sh"),
    ("mlperf_llama2_70b_lora_gb200", "gb200", 8): ("5.1", f"Dell/{LORA}/nemo/config_GB200_2x4x1xtp1pp1cp1.sh"),
    ("mlperf_llama2_70b_lora_gb200", "gb200", 72): ("5.1", f"NVIDIA/{LORA}/nemo/config_GB200_18x4x1xtp1pp1cp8.sh"),
    ("mlperf_llama2_70b_lora_gb300", "gb300", 8): ("5.1", f"Dell/{LORA}/nemo/config_GB300_2x4x1xtp1pp1cp1.sh"),
    ("mlperf_llama2_70b_lora_gb300", "gb300", 512): ("5.1", f"NVIDIA/{LORA}/nemo/config_GB300_128x4x1xtp1pp1cp8.sh"),
    ("mlperf_llama31_8b_blackwell", "b200", 8): ("5.1", f"Dell/{PRETRAINING}/config_DGXB200_1x8x2xtp1pp1cp1_8b.sh"),
    ("mlperf_llama31_8b_blackwell", "gb200", 8): ("5.1", f"Dell/{PRETRAINING}/config_GB200_2x4x2xtp1pp1cp1_8b.sh"),
    ("mlperf_llama31_8b_gb300", "gb300", 72): ("5.1", f"NVIDIA/{PRETRAINING}/config_GB300_18x4x1xtp1pp1cp2_8b.sh"),
    ("mlperf_flux1_b200", "b200", 32): (
        "5.1",
        "Nebius/benchmarks/flux1/configs/nebius_b200_n4/config_DGXB200_04x08x32.sh",
    ),
    ("mlperf_flux1_b200", "b200", 72): ("5.1", "Oracle/benchmarks/flux1/config_B200_09x08x32.sh"),
}
OF_BASH = ("PWD", "OLDPWD", "SHLVL", "PATH", "_")


def exported(checkout: Path, path: str) -> dict[str, str]:
    """The common file may lie in configs/, where run.sub expects it."""
    folder = (checkout / path).parent
    common = folder / "configs/config_common.sh"
    found = folder / "config_common.sh"
    made = common.exists() and not found.exists()
    if made:
        found.symlink_to(common)
    try:
        done = subprocess.run(
            ["bash", "-c", f"source {path} && env -0"],
            cwd=checkout,
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        if made:
            found.unlink()
    pairs = (entry.partition("=") for entry in done.stdout.split("\0") if entry)
    return {name: value for name, _, value in sorted(pairs) if name not in OF_BASH}


def commit(checkout: Path) -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main(checkouts: dict[str, Path]) -> None:
    rows = [
        {
            "recipe": recipe,
            "hardware": hardware,
            "gpus": gpus,
            "source": f"mlcommons/training_results_v{release}@{commit(checkouts[release])[:12]}: {path}",
            "variables": exported(checkouts[release], path),
        }
        for (recipe, hardware, gpus), (release, path) in FILES.items()
    ]
    head = "# What the public MLPerf configurations export. Made by docs/make_mlperf_configurations.py.\n"
    OUT.write_text(head + yaml.safe_dump(rows, sort_keys=False, width=120))


if __name__ == "__main__":
    main({"4.1": Path(sys.argv[1]).resolve(), "5.1": Path(sys.argv[2]).resolve()})
