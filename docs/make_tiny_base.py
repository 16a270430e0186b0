"""Makes configs/mlperf/tiny_base.npz: the weights that tiny adapters are trained beside.

.venv/bin/python docs/make_tiny_base.py [--steps=1200]

MaxText pretrains llama2_text_tiny on configs/mlperf/tiny_text, as --task=mlperf --model=llama31_8b_tiny trains its
model, but all the steps. The weights are kept under neutral names, which both backends know their own by.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.backend import find_backend  # noqa: E402
from benchmarks.configs import Configs  # noqa: E402
from benchmarks.request.resolve import Request, resolve  # noqa: E402
from launch.environments import venvs  # noqa: E402

OUT = REPOSITORY / "configs" / "mlperf" / "tiny_base.npz"
NEVER = 0.01  # a loss that is not reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1200)
    asked = parser.parse_args()
    backend, configs = find_backend("jax"), Configs()
    request = Request(backend="jax", task="mlperf", model="llama31_8b_tiny", steps=asked.steps)
    small = resolve(request, configs, backend)
    assert small.convergence is not None
    towards = msgspec.structs.replace(small.convergence, target_loss=NEVER)
    small = msgspec.structs.replace(small, model=configs.model("llama2_text_tiny"), convergence=towards)
    (phase,) = backend.plan(small).phases
    python = venvs.ensure(backend.environment(small.engine))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "maxtext").mkdir()
        places = {"python": str(python), "repository": str(REPOSITORY), "phase_dir": folder}
        command = [word.format(**places) for word in phase.command]
        at = next(place for place, word in enumerate(command) if word.endswith("jax_backend/inside/worker.py"))
        program = [*command[:at], str(REPOSITORY / "docs" / "tiny_base_program.py"), str(OUT), *command[at + 1 :]]
        variables = {name: text.format(**places) for name, text in phase.environment.items()}
        subprocess.run(program, check=True, env={**os.environ, **variables})
        events = (Path(folder) / "events-rank0.jsonl").read_text().splitlines()
        print(next(line for line in reversed(events) if '"evaluation"' in line))


if __name__ == "__main__":
    main()
