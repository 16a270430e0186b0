"""The floors of the house: each imports only floors below it. Read from the source, nothing is imported."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("benchmarks", "jax_backend", "nemo_backend", "launch")
FRAMEWORKS = {
    "jax", "jaxlib", "flax", "maxtext", "MaxText", "torch", "nemo", "megatron", "lightning", "transformer_engine",
    "tensorflow", "optax", "orbax",
}  # fmt: skip
STATISTICS = {
    f"benchmarks.{name}"
    for name in (
        "statistics",
        "figures",
        "summary",
        "foreign",
        "utilisation",
        "window",
        "verification",
        "interval",
        "settling",
        "early_stop.stopping",
        "early_stop.stopped",
    )
}
# These run inside a framework's environment.
INSIDE = {
    "worker.py", "list_settings.py", "build.py", "cpu_redirect.py", "make_dataset.py", "check_request.py",
    "convert_profile.py", "kernel_table.py", "list_xla_flags.py", "pgle_watch.py", "hlo_text.py",
    "profile_identity.py", "profiled_steps.py", "early_stop.py", "peak_program.py", "work_program.py",
    "compile_program.py", "hlo_account.py", "evaluation.py", "adapters.py", "weights.py",
    "environment_check.py", "maxtext_errors.py",
    "nemo_check.py", "torch_check.py", "bridge_check.py",
}  # fmt: skip
KIT = ROOT / "benchmarks" / "worker_kit.py"
# What a worker loads beside it where a run may end early (--until), or at a target.
RULE = [
    ROOT / "benchmarks" / name
    for name in ("interval.py", "settling.py", "early_stop/stopping.py", "convergence/goal.py")
]


def files_of(floor: str) -> list[Path]:
    return sorted((ROOT / floor).rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module an import names, anywhere in the file; `from a import b` may mean the module a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def touches(path: Path, forbidden: set[str]) -> list[str]:
    """Imports of a forbidden module, or of one inside it."""
    found = []
    for name in imports(tree_of(path)):
        parts = name.split(".")
        if any(".".join(parts[:end]) in forbidden for end in range(1, len(parts) + 1)):
            found.append(name)
    return found


def ids(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


CORE = files_of("benchmarks")
JAX = [path for path in files_of("jax_backend") if path.name not in INSIDE]
NEMO = [path for path in files_of("nemo_backend") if path.name not in INSIDE]
LAUNCH = files_of("launch")


def test_the_floors_are_there() -> None:
    assert len(CORE) > 10
    assert len(JAX) > 3
    assert len(LAUNCH) > 3


@pytest.mark.parametrize("path", CORE, ids=ids(CORE))
def test_the_core_knows_no_backend_no_framework_and_starts_nothing(path: Path) -> None:
    above = {"jax_backend", "nemo_backend", "launch", "tests"}
    assert touches(path, above | FRAMEWORKS | {"subprocess", "multiprocessing", "absl", "rich", "tensorboard"}) == []


@pytest.mark.parametrize("path", JAX + NEMO, ids=ids(JAX + NEMO))
def test_a_backend_plans_and_reads_without_framework_launcher_or_statistics(path: Path) -> None:
    assert touches(path, FRAMEWORKS | STATISTICS | {"launch", "subprocess", "statistics"}) == []


@pytest.mark.parametrize("path", files_of("jax_backend"), ids=ids(files_of("jax_backend")))
def test_the_jax_backend_knows_no_nemo(path: Path) -> None:
    assert touches(path, {"nemo_backend"}) == []


@pytest.mark.parametrize("path", files_of("nemo_backend"), ids=ids(files_of("nemo_backend")))
def test_the_nemo_backend_knows_no_jax(path: Path) -> None:
    assert touches(path, {"jax_backend"}) == []


@pytest.mark.parametrize("path", LAUNCH, ids=ids(LAUNCH))
def test_the_launcher_imports_no_framework_and_no_backend_by_name(path: Path) -> None:
    assert touches(path, FRAMEWORKS | {"jax_backend", "nemo_backend"}) == []


WORKERS = [KIT, *RULE, *(p for floor in ("jax_backend", "nemo_backend") for p in files_of(floor) if p.name in INSIDE)]


@pytest.mark.parametrize("path", WORKERS, ids=ids(WORKERS))
def test_what_runs_inside_a_framework_uses_nothing_of_ours(path: Path) -> None:
    """nemo_toolkit installs top-level packages of common names: ours must not be looked for there."""
    assert touches(path, {*FLOORS, "tests", "configs"}) == []


@pytest.mark.parametrize(
    ("backend", "frameworks"),
    [
        ("jax_backend", {"jax", "flax", "maxtext", "absl"}),
        ("nemo_backend", {"torch", "lightning", "megatron", "nemo"}),
    ],
)
def test_a_worker_starts_on_the_standard_library_alone(backend: str, frameworks: set[str]) -> None:
    tree = tree_of(ROOT / backend / "worker.py")
    at_the_top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {name.split(".")[0] for node in at_the_top for name in imports(node)}
    assert names
    assert names <= sys.stdlib_module_names
    inside = {name.split(".")[0] for name in imports(tree)} - sys.stdlib_module_names
    assert inside == frameworks


def test_the_workers_kit_needs_nothing_but_the_standard_library() -> None:
    assert {name.split(".")[0] for name in imports(tree_of(KIT))} <= sys.stdlib_module_names


@pytest.mark.parametrize("path", RULE, ids=ids(RULE))
def test_the_rule_that_ends_a_run_needs_scipy_and_nothing_else(path: Path) -> None:
    assert {name.split(".")[0] for name in imports(tree_of(path))} <= {*sys.stdlib_module_names, "scipy"}


def test_configs_hold_data_and_no_code() -> None:
    files = [path for path in (ROOT / "configs").rglob("*") if path.is_file()]
    assert files
    data = (".yml", ".csv", ".json", ".bin", ".idx", ".npz")  # from .json on: small texts as tokens, weights
    assert [path.name for path in files if path.suffix not in data] == []
