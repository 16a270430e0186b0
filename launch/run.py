"""Measure how fast this machine or a cluster trains an LLM.

Examples:
  python launch/run.py --backend=jax --model=llama2_tiny
      train a tiny Llama 2 with MaxText on this machine's CPU and say how fast it was
  python launch/run.py --backend=jax --model=llama2_tiny --gpus=8 \\
      --set=ici_fsdp_parallelism=4 --set=ici_data_parallelism=2
      the same over 8 virtual devices, FSDP 4 x data 2
  python launch/run.py --backend=jax --model=llama2_70b --dtype=fp8 --hardware=h100 --gpus=64 --dry_run
      show the whole plan of a cluster run: commands, environment, FLOPs and memory per device
  python launch/run.py --backend=nemo --model=llama3_tiny --task=lora
      train adapters beside a frozen tiny Llama 3 with NeMo on this machine's CPU
  python launch/run.py --list --hardware=h100
      what can be run there

What a flag leaves open comes from the recipe. Exit codes: 0 done and valid; 1 the run failed;
2 the request was wrong and nothing was started; 3 it ran, but the result is invalid.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import shlex
import sys
from pathlib import Path

from absl import flags

from benchmarks import report
from benchmarks.backend import Backend, find_backend
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_FAILED, EXIT_INVALID, EXIT_VALID, LIST_COMMAND, RequestError
from benchmarks.resolve import Request, resolve
from benchmarks.summary import Result
from benchmarks.values import Benchmark
from launch import places
from launch.cli import run_main

FLAGS = flags.FLAGS
flags.DEFINE_string(
    "backend", None, "The framework: jax (MaxText), nemo (NeMo/Megatron) or another installed backend."
)
flags.DEFINE_string("model", None, "A model of configs/models, such as llama2_tiny or llama2_70b.")
flags.DEFINE_enum("task", "pretrain", ["pretrain", "lora", "mlperf"], "What to train.")
flags.DEFINE_string("engine", None, "The program of the backend, where it has several: nemo or bridge.")
flags.DEFINE_string("dtype", None, "The precision of the matmuls: bf16, fp8, fp32 or int8.")
flags.DEFINE_string("hardware", None, "A device of configs/hardware, such as h100 or cpu.")
flags.DEFINE_integer("gpus", None, "Devices in all. On a CPU: virtual devices.")
flags.DEFINE_integer("nodes", None, "Nodes that share the devices. On site local: processes.")
flags.DEFINE_string("site", "local", "Where to run: a site of configs/sites.")
flags.DEFINE_integer("steps", None, "Training steps.")
flags.DEFINE_integer("repeats", 1, "Run the benchmark this often, one after the other.")
flags.DEFINE_string("window", None, "Which steps count: steady, last, or A-B such as 35-44.")
flags.DEFINE_enum("profile", "none", ["none", "nsys", "xplane", "nccl"], "Profile the run.")
flags.DEFINE_enum("pgle", "off", ["off", "nsys", "auto"], "Profile-guided latency estimation.")
flags.DEFINE_string("data", None, "A folder with a dataset (launch/setup.py --dataset) instead of the recipe's data.")
flags.DEFINE_multi_string("set", [], "Override one setting, such as sequence_length=64; repeat for more.")
flags.DEFINE_string("output_dir", "results", "The folder that gets one folder a run.")
flags.DEFINE_boolean("dry_run", False, "Show the plan; start nothing, write nothing.")
flags.DEFINE_boolean("list", False, "Show what can be run, filtered by the other flags.")
flags.DEFINE_boolean("wait", True, "Wait for the result (--nowait: for sites with a queue).")


def main(argv: list[str]) -> int:
    if len(argv) > 1:
        raise RequestError(
            f"unexpected argument '{argv[1]}'",
            why="everything is said by flags",
            next_command="python launch/run.py --help",
        )
    configs = places.configs()
    if FLAGS.list:
        print(_listing(configs))
        return EXIT_VALID
    request = _request()
    backend = find_backend(request.backend)
    _refuse_flags()
    benchmark = resolve(request, configs, backend)
    if FLAGS.dry_run:
        print(report.plan_text(benchmark, backend.plan(benchmark), backend.storage(benchmark)))
        return EXIT_VALID
    return _run(benchmark, backend)


def _request() -> Request:
    for name in ("backend", "model"):
        if getattr(FLAGS, name) is None:
            raise RequestError(f"--{name} is missing", next_command=LIST_COMMAND)
    return Request(
        backend=FLAGS.backend,
        model=FLAGS.model,
        task=FLAGS.task,
        engine=FLAGS.engine,
        dtype=FLAGS.dtype,
        hardware=FLAGS.hardware,
        gpus=FLAGS.gpus,
        nodes=FLAGS.nodes,
        site=FLAGS.site,
        steps=FLAGS.steps,
        window=FLAGS.window,
        profile=FLAGS.profile,
        pgle=FLAGS.pgle,
        data=str(Path(FLAGS.data).absolute()) if FLAGS.data else None,
        settings=_settings(FLAGS.set),
    )


def _refuse_flags() -> None:
    if FLAGS.repeats < 1:
        raise RequestError(f"--repeats={FLAGS.repeats}: it must be 1 or more", where="--repeats")
    if not FLAGS.wait:
        raise RequestError("--nowait needs a site with a queue", where=f"--site={FLAGS.site}", next_command="--wait")


def _settings(texts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise RequestError(f"--set={text}: KEY=VALUE is expected", where="--set")
        if found.get(key, value) != value:
            raise RequestError(f"--set={key} is given twice, with {found[key]} and {value}", where="--set")
        found[key] = value
    return found


def _listing(configs: Configs) -> str:
    from launch.listing import listing

    return listing(
        configs,
        backend=FLAGS.backend,
        model=FLAGS.model,
        task=FLAGS.task if FLAGS["task"].present else None,
        dtype=FLAGS.dtype,
        hardware=FLAGS.hardware,
        gpus=FLAGS.gpus,
    )


def _run(benchmark: Benchmark, backend: Backend) -> int:
    from launch import local

    local.refuse(benchmark, backend.storage(benchmark))
    worst = EXIT_VALID
    for number in range(1, FLAGS.repeats + 1):
        if FLAGS.repeats > 1:
            print(f"run {number} of {FLAGS.repeats}", file=sys.stderr)
        result = _run_once(benchmark, backend)
        worst = _worse(worst, {"valid": EXIT_VALID, "failed": EXIT_FAILED, "invalid": EXIT_INVALID}[result.status])
        if any(reason.startswith("interrupted") for reason in result.reasons):
            break
    return worst


def _run_once(benchmark: Benchmark, backend: Backend) -> Result:
    from launch.execute import execute

    folder, result = execute(benchmark, backend, Path(FLAGS.output_dir))
    rows = report.result_rows(result)
    rows.append(("files", str(folder.path)))
    rows.append(("next", _next_command(folder.path, result)))
    print("\n".join([report.title(benchmark), *report.aligned(rows)]), flush=True)
    return result


def _next_command(path: Path, result: Result) -> str:
    if result.status == "failed":
        return f"tail -n 40 {shlex.quote(str(path))}/attempt-1/*/rank-0.log"
    place, parent = shlex.quote(str(path)), shlex.quote(str(path.parent))
    return f"python launch/verify.py {place}\npython -m tensorboard.main --logdir {parent}"


def _worse(one: int, other: int) -> int:
    """A failed run outranks an invalid one, which outranks a valid one."""
    order = [EXIT_VALID, EXIT_INVALID, EXIT_FAILED]
    return max(one, other, key=order.index)


if __name__ == "__main__":
    run_main(main)
