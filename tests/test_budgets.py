"""How heavy Stepmark may be: lines of each folder and in all, and files.

A budget is raised only in a commit that says what the lines buy. `python -m tests.test_budgets` prints the table.
test_loaded_modules.py holds the modules that a local run imports, test_layers.py that folders make no circles.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("benchmarks", "jax_backend", "nemo_backend", "launch")

# Lines of Python by folder. A folder without a row counts to the nearest one above that has a row.
BUDGETS = {
    "benchmarks": 2_420,
    "benchmarks/compare": 1_590,
    "benchmarks/compilation": 900,
    "benchmarks/dashboard": 1_000,
    "benchmarks/doctor": 1_460,
    "benchmarks/equivalence": 470,
    "benchmarks/history": 750,
    "benchmarks/inside": 1_220,
    "benchmarks/logs": 1_120,
    "benchmarks/machine": 610,
    "benchmarks/measuring": 1_470,
    "benchmarks/mlperf": 1_660,
    "benchmarks/model": 2_280,
    "benchmarks/nightly": 1_690,
    "benchmarks/pages": 2_020,
    "benchmarks/preflight": 640,
    "benchmarks/reading": 790,
    "benchmarks/references": 280,
    "benchmarks/request": 1_490,
    "benchmarks/runs": 2_000,
    "benchmarks/sweeps": 820,
    "benchmarks/telemetry": 740,
    "benchmarks/trace": 1_410,
    "jax_backend": 1_690,
    "jax_backend/inside": 2_930,
    "launch": 2_120,
    "launch/assets": 360,
    "launch/campaigns": 370,
    "launch/campaigns/nights": 510,
    "launch/checks": 630,
    "launch/cli": 760,
    "launch/cli/doctor": 140,
    "launch/cli/plan": 210,
    "launch/cli/report": 460,
    "launch/dashboards": 170,
    "launch/environments": 1_640,
    "launch/inside": 330,
    "launch/machine": 360,
    "launch/mlperf": 570,
    "launch/preflight": 510,
    "launch/private_cluster": 1_040,
    "launch/running": 1_080,
    "launch/sites": 1_160,
    "launch/slurm": 2_420,
    "launch/terminal": 580,
    "nemo_backend": 2_630,
    "nemo_backend/inside": 1_550,
}
PRODUCT_LINES = 52_900
TEST_LINES = 40_500
PRODUCT_FILES = 367


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def product_files() -> list[Path]:
    return [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def row_of(path: Path) -> str:
    """The row of BUDGETS that a file counts to."""
    folder = path.relative_to(ROOT).parent
    above = [one for one in (folder, *folder.parents) if one.name and str(one) not in LAYERS]
    return next((str(one) for one in above if str(one) in BUDGETS), str(folder))


def lines_by_row() -> dict[str, int]:
    lines = dict.fromkeys(BUDGETS, 0)
    for path in product_files():
        lines[row_of(path)] = lines.get(row_of(path), 0) + lines_of(path)
    return lines


def test_no_folder_is_over_its_budget() -> None:
    lines = lines_by_row()
    assert {row: (found, BUDGETS.get(row)) for row, found in lines.items() if found > BUDGETS.get(row, 0)} == {}


def test_the_product_and_its_tests_are_within_their_budgets() -> None:
    files = product_files()
    assert sum(lines_of(path) for path in files) <= PRODUCT_LINES
    assert sum(lines_of(path) for path in (ROOT / "tests").rglob("*.py")) <= TEST_LINES
    assert len(files) <= PRODUCT_FILES


if __name__ == "__main__":
    for name, count in sorted(lines_by_row().items()):
        print(f"{count:7,} of {BUDGETS.get(name, 0):7,}  {name}")
    print(f"{sum(lines_of(path) for path in product_files()):7,} of {PRODUCT_LINES:7,}  in all")
