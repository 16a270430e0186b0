"""Inside MaxText: builds its whole configuration from the arguments and environment of many plans, in one process.

Run by path in MaxText's environment. Reads a JSON list of plans from stdin, {name, settings, environment, devices,
processes, on_a_node}; prints a JSON line for each: {name, problem, global_batch_size, mesh, hardware, attention,
quantization}. The function that builds it is the one that worker.py --check uses.
"""

import contextlib
import gc
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

BACKEND = Path(__file__).resolve().parents[2] / "jax_backend" / "inside"
ARGUMENTS = ("settings", "devices", "processes", "on_a_node")
SAME = ("hardware", "attention", "quantization")


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"stepmark_{name}", BACKEND / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


worker, check = loaded("worker"), loaded("environment_check")


def built(plan: dict[str, Any]) -> dict[str, Any]:
    try:
        with mock.patch.dict(os.environ, plan["environment"]), contextlib.redirect_stdout(sys.stderr):
            config = check.configuration(*(plan[name] for name in ARGUMENTS), worker)
    except worker.kit.CheckFailure as error:
        return {"problem": str(error)}
    return {
        "problem": None,
        "global_batch_size": config.global_batch_size_to_train_on,
        **{name: getattr(config, name) for name in SAME},
    }


gc.disable()  # most of the time would be the collector's
for given in json.load(sys.stdin):
    print(json.dumps({"name": given["name"], **built(given)}), flush=True)
