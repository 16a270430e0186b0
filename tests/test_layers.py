"""The layers of the design, read from the source: each imports only layers below it, and no import makes a cycle."""

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("benchmarks", "jax_backend", "nemo_backend", "launch")
FRAMEWORKS = {
    "jax", "jaxlib", "flax", "maxtext", "MaxText", "torch", "nemo", "megatron", "lightning", "transformer_engine",
    "tensorflow", "optax", "orbax",
}  # fmt: skip
STATISTICS = {f"benchmarks.measuring.{name}" for name in ("figures", "summary", "utilisation", "window")} | {
    "benchmarks.statistics",
    "benchmarks.logs.foreign",
}
COMMANDS = {
    "cluster", "compare", "dashboard", "doctor", "ingest", "nightly", "peak", "plan", "report", "run", "setup",
    "status", "verify",
}  # fmt: skip


def files_of(layer: str) -> list[Path]:
    return sorted((ROOT / layer).rglob("*.py"))


def is_inside(path: Path) -> bool:
    """Return whether a file is loaded by path, where Stepmark's packages cannot be imported."""
    return "inside" in path.parts


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module an import names, anywhere in the file; `from a import b` may mean the module a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def touches(path: Path, forbidden: set[str]) -> list[str]:
    """Imports of a forbidden module, or of one inside it."""
    found = []
    for name in imports(tree_of(path)):
        parts = name.split(".")
        if any(".".join(parts[:end]) in forbidden for end in range(1, len(parts) + 1)):
            found.append(f"{path.relative_to(ROOT)}: {name}")
    return found


def assert_untouched(paths: Iterable[Path], forbidden: set[str]) -> None:
    assert [found for path in paths for found in touches(path, forbidden)] == []


FILES = [path for layer in LAYERS for path in files_of(layer)]
INSIDE = [path for path in FILES if is_inside(path)]


def test_the_layers_are_there() -> None:
    assert all(len(files_of(layer)) > 10 for layer in LAYERS)
    assert {path.parts[-3] for path in INSIDE} == set(LAYERS)


def test_the_core_knows_no_backend_no_framework_and_starts_nothing() -> None:
    above = {"jax_backend", "nemo_backend", "launch", "tests"}
    starts = {"subprocess", "multiprocessing", "absl", "rich"}
    dashboard = ROOT / "benchmarks" / "dashboard"  # writes TensorBoard's event files
    others = [path for path in files_of("benchmarks") if dashboard not in path.parents]
    assert_untouched(files_of("benchmarks"), above | FRAMEWORKS | starts)
    assert_untouched(others, {"tensorboard"})


@pytest.mark.parametrize("own", ["jax_backend", "nemo_backend"])
def test_a_backend_plans_and_reads_without_framework_launcher_statistics_or_the_other_backend(own: str) -> None:
    foreign = {"launch", "jax_backend", "nemo_backend"} - {own}
    outside = [path for path in files_of(own) if not is_inside(path)]
    assert_untouched(files_of(own), foreign)
    assert_untouched(outside, FRAMEWORKS | STATISTICS | {"subprocess", "statistics"})


def test_the_launcher_imports_no_framework_and_no_backend_by_name() -> None:
    assert_untouched(files_of("launch"), FRAMEWORKS | {"jax_backend", "nemo_backend"})


def test_what_is_loaded_by_path_uses_nothing_of_ours() -> None:
    """nemo_toolkit installs top-level packages of common names: ours must not be looked for there."""
    assert_untouched(INSIDE, {*LAYERS, "tests", "configs"})


@pytest.mark.parametrize(
    ("backend", "frameworks"),
    [
        ("jax_backend", {"jax", "flax", "maxtext", "absl"}),
        ("nemo_backend", {"torch", "lightning", "megatron", "nemo"}),
    ],
)
def test_a_worker_starts_on_the_standard_library_and_the_kit(backend: str, frameworks: set[str]) -> None:
    tree = tree_of(ROOT / backend / "inside" / "worker.py")
    at_the_top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {name.split(".")[0] for node in at_the_top for name in imports(node)}
    assert names - sys.stdlib_module_names == {"worker_kit"}
    inside = {name.split(".")[0] for name in imports(tree)} - sys.stdlib_module_names - {"worker_kit"}
    assert inside == frameworks


def test_the_workers_kit_needs_nothing_but_the_standard_library() -> None:
    kit = ROOT / "benchmarks" / "inside" / "worker_kit.py"
    assert {name.split(".")[0] for name in imports(tree_of(kit))} <= sys.stdlib_module_names


def test_no_import_makes_a_cycle() -> None:
    """Anywhere in a file: an import inside a function hides a cycle, and does not undo it."""
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in FILES}
    graph = {
        name: {found for found in imports(tree_of(path)) if found in modules and found != name}
        for name, path in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def without_type_checking(path: Path) -> ast.Module:
    """The file without what it imports for annotations only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    return tree


def test_no_folder_imports_another_in_a_circle() -> None:
    files = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in FILES if not is_inside(path)}
    graph: dict[Path, set[Path]] = {}
    for path in files.values():
        others = {files[found].parent for found in imports(without_type_checking(path)) if found in files}
        graph.setdefault(path.parent, set()).update(others - {path.parent})
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(str(folder.relative_to(ROOT)) for folder in error.args[1]))


def test_the_folders_show_the_architecture() -> None:
    assert {path.stem for path in (ROOT / "launch").glob("*.py")} == COMMANDS | {"__init__", "_script"}
    assert len(list((ROOT / "benchmarks").glob("*.py"))) <= 12  # with __init__


def test_configs_hold_data_and_no_code() -> None:
    files = [path for path in (ROOT / "configs").rglob("*") if path.is_file()]
    assert files
    data = (".yml", ".csv", ".json", ".bin", ".idx", ".npz")  # from .json on: small texts as tokens, weights
    assert [path.name for path in files if path.suffix not in data] == []
