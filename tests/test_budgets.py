"""How heavy Stepmark may be: lines of each folder and in all, and files.

A budget is raised only in a commit that says what the lines buy. `python -m tests.test_budgets` prints the table.
test_loaded_modules.py holds the modules that a local run imports, test_layers.py that folders make no circles.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("benchmarks", "jax_backend", "nemo_backend", "launch")

# Lines of Python by folder. A folder without a row counts to the nearest one above that has a row.
BUDGETS = {
    "benchmarks": 2_620,
    "benchmarks/compare": 1_432,
    "benchmarks/compilation": 1_292,
    "benchmarks/dashboard": 876,
    "benchmarks/doctor": 1_420,
    "benchmarks/equivalence": 470,
    "benchmarks/history": 696,
    "benchmarks/inside": 1_182,
    "benchmarks/logs": 1_065,
    "benchmarks/machine": 580,
    "benchmarks/measuring": 1_438,
    "benchmarks/mlperf": 1_590,
    "benchmarks/model": 2_906,
    "benchmarks/nightly": 1_690,
    "benchmarks/pages": 1_430,
    "benchmarks/preflight": 630,
    "benchmarks/reading": 622,
    "benchmarks/references": 145,
    "benchmarks/request": 1_490,
    "benchmarks/runs": 1_850,
    "benchmarks/sweeps": 675,
    "benchmarks/telemetry": 690,
    "benchmarks/trace": 1_310,
    "jax_backend": 1_866,
    "jax_backend/inside": 2_826,
    "launch": 2_446,
    "launch/assets": 340,
    "launch/campaigns": 380,
    "launch/campaigns/nights": 460,
    "launch/checks": 566,
    "launch/cli": 740,
    "launch/dashboards": 170,
    "launch/environments": 1_605,
    "launch/inside": 310,
    "launch/machine": 350,
    "launch/mlperf": 570,
    "launch/preflight": 480,
    "launch/private_cluster": 990,
    "launch/running": 1_064,
    "launch/sites": 870,
    "launch/slurm": 2_400,
    "launch/terminal": 570,
    "nemo_backend": 2_620,
    "nemo_backend/inside": 3_096,
}
PRODUCT_LINES = 52_710
TEST_LINES = 42_840
PRODUCT_FILES = 345


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
