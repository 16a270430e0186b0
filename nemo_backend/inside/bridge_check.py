"""Before the other nodes of a job are used: can Megatron-Bridge, on this one, build what the plan says?

    bridge_check.py --events_dir=DIR --processes=N --tasks_per_node=N [--device_name=NAME...] -- SCRIPT ARGUMENTS...

Runs by path inside NVIDIA's container. What follows `--` is the run's own command: run_recipe.py builds its whole
configuration from it, for as many processes as the run has, and with --dry-run trains nothing.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import worker_kit as kit  # noqa: E402

PACKAGES = ("torch", "transformer-engine", "megatron-core", "megatron-bridge", "transformers", "numpy")
ANOTHER_IMAGE = "pass --image with Megatron-Bridge 0.6"
ANOTHER_SETTING = "pass --set with a value that this Megatron-Bridge accepts, or " + ANOTHER_IMAGE
NO_CONFIGURATION = ("LocalEntryNotFoundError", "OfflineModeIsEnabled", "GatedRepoError", "couldn't connect to")
FETCH = "export HF_TOKEN and download it with python launch/setup.py --site=NAME --model=MODEL --engine=bridge"


def look(options):
    """{versions, devices}, or the first thing that is wrong."""
    asked = kit.load(HERE / "nemo_check.py")
    with kit.checking("torch cannot be imported", ANOTHER_IMAGE):
        versions = asked.list_versions(PACKAGES, kit)
    devices = asked.find_devices(options.tasks_per_node, options.device_name, kit)
    asked.import_transformer_engine(["Megatron-Bridge"], kit)
    with kit.checking("Megatron-Bridge cannot be imported", ANOTHER_IMAGE):
        import megatron.bridge  # noqa: F401
    build_configuration(options)
    return {"versions": versions, "devices": devices}


def build_configuration(options):
    """Build it in a separate process, because run_recipe.py restarts itself with its recipe's variables."""
    script, *arguments = options.command
    if not Path(script).is_file():
        raise kit.CheckFailure(f"{script} does not exist", "this image has different folders", ANOTHER_IMAGE)
    written = f"logger.save_config_filepath={options.events_dir}/configuration.yaml"
    done = subprocess.run(
        [sys.executable, script, "--dry-run", *arguments, written],
        env={**os.environ, "WORLD_SIZE": str(options.processes), "RANK": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    print(done.stdout, flush=True)
    if done.returncode == 0:
        return
    last = next((line for line in reversed(done.stdout.splitlines()) if line.strip()), f"exit code {done.returncode}")
    if any(word in done.stdout for word in NO_CONFIGURATION):
        raise kit.CheckFailure("the model's configuration is not in HF_HOME, and the job is offline", last, FETCH)
    raise kit.CheckFailure("run_recipe.py does not take the run's arguments", last, ANOTHER_SETTING)


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events_dir", required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--tasks_per_node", type=int, required=True)
    parser.add_argument("--device_name", action="append", default=[])
    parser.add_argument("command", nargs="+")
    return parser.parse_args(argv)


if __name__ == "__main__":
    given = parse(sys.argv[1:])
    kit.leave(kit.run_check(lambda: look(given), kit.EventFile(Path(given.events_dir) / "events-rank0.jsonl")))
