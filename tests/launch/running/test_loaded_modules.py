"""A plain local run loads the core, and nothing of what it does not use."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.toy_backend import install, make_environment_in

REPOSITORY = Path(__file__).resolve().parents[3]
MOST = 76  # modules of ours, without the __init__ of packages
PROBE = """
import json, runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps([name for name, module in sys.modules.items() if not hasattr(module, "__path__")]))
"""


def test_a_plain_local_run_loads_the_core_alone(tmp_path: Path) -> None:
    variables = install(tmp_path)
    make_environment_in(tmp_path)
    flags = ["--backend=toy", "--model=llama2_tiny", "--steps=4", f"--output_dir={tmp_path / 'results'}"]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(REPOSITORY / "launch" / "run.py"), *flags],
        env={
            **os.environ,
            **variables,
            "PYTHONPATH": f"{variables['PYTHONPATH']}:{REPOSITORY}:{REPOSITORY / 'launch'}",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    ours = ("benchmarks", "launch", "toy_backend", "jax_backend", "nemo_backend")
    loaded = sorted(name for name in json.loads(done.stdout.splitlines()[-1]) if name.split(".")[0] in ours)
    foreign = ("benchmarks.mlperf.", "launch.mlperf.", "launch.dashboards.", "jax_backend", "nemo_backend")
    assert [name for name in loaded if name.startswith((*foreign, "benchmarks.convergence.reached"))] == []
    assert len(loaded) <= MOST, loaded
