"""Compiles several layouts of one model, and prints what the compiler says that each takes of a device's memory.

Runs by path inside MaxText's environment, all layouts in one process: `python -P compile_layouts.py DEVICES` reads a
list of lists of MaxText's settings from stdin, and prints a list of bytes in its last line.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "jax_backend" / "inside" / "compile_program.py"


def main(devices: str) -> None:
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    spec = importlib.util.spec_from_file_location("compile_program", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    found = []
    for settings in json.load(sys.stdin):
        memory = program.Step(settings, program.Clock()).compiled.memory_analysis()
        taken = memory.argument_size_in_bytes + memory.temp_size_in_bytes
        found.append(taken + memory.output_size_in_bytes - memory.alias_size_in_bytes)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
