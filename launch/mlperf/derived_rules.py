"""The rules that a small copy of a benchmark is judged by, made from those of the installed package."""

from pathlib import Path

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.mlperf.definitions import MlperfBenchmark
from benchmarks.mlperf.derived import derive_benchmark, derive_common
from launch.mlperf import package


def derived_rules(small: MlperfBenchmark, ruleset: str, configs: Configs, folder: Path) -> Path:
    """Writes them into a folder, and gives the file to begin with: for the compliance checker's --config."""
    if small.stands_for is None:
        raise RequestError(f"{small.name} stands for no other benchmark", why="it has rules of its own")
    real = configs.mlperf(small.stands_for)
    rules = package.folder() / "compliance_checker" / f"training_{ruleset}"
    source = rules / f"closed_{real.name}.yaml"
    if not source.is_file():
        raise RequestError(
            f"{real.name} is not in ruleset {ruleset}",
            where=str(source),
            why=f"it is in {', '.join(real.rulesets)}",
        )
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("common.yaml", "closed_common.yaml"):
        text = (rules / name).read_text(encoding="utf-8")
        derived = derive_common(text, real, small, ruleset, str(folder))
        (folder / name).write_text(derived, encoding="utf-8")
    text = derive_benchmark(source.read_text(encoding="utf-8"), real, small)
    (folder / f"closed_{small.name}.yaml").write_text(text, encoding="utf-8")
    return folder / "common.yaml"
