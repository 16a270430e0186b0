"""Makes the table of docs/reference/expected_results.md from the published rows of configs/references.

.venv/bin/python docs/make_expected_results.py
"""

import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.configs import Configs  # noqa: E402
from benchmarks.measuring.utilisation import Workload, mfu  # noqa: E402
from benchmarks.model.published_rows import Reference, read_references  # noqa: E402

PAGE = REPOSITORY / "docs" / "reference" / "expected_results.md"
MARK = "<!-- Made by docs/make_expected_results.py from configs/references. -->\n"
FRAMEWORKS = {"maxtext": "MaxText", "nemo": "NeMo", "bridge": "Megatron-Bridge"}
HEAD = ("GPU", "GPUs", "precision", "framework", "s/step", "tokens/s/GPU", "MFU %", "source")


def page() -> str:
    """Return the page: its own text up to the mark, then the table."""
    return PAGE.read_text().partition(MARK)[0] + MARK + "\n".join(tables())


def tables() -> Iterator[str]:
    """Yield the lines of one table per model and task."""
    configs, newest = Configs(), dict[tuple[object, ...], Reference]()
    for row in read_references(configs.root):
        newest[title(row), row.hardware, row.precision, row.engine, row.gpus] = row
    rows = sorted(newest.values(), key=lambda row: (title(row), row.hardware, row.precision, row.gpus))
    group = ""
    for row in rows:
        if group != (group := title(row)):
            yield f"\n### {group}\n\n| {' | '.join(HEAD)} |\n| {' | '.join('---' for _ in HEAD)} |"
        yield f"| {' | '.join(cells(row, configs))} |"
    yield ""


def title(row: Reference) -> str:
    mtp = ", without MTP" if row.mtp_modules == "0" else ""
    return f"{row.model}, {row.task}{mtp}{', dropping tokens' if row.routing == 'dropping' else ''}"


def cells(row: Reference, configs: Configs) -> tuple[str, ...]:
    workload = Workload(
        model=row.trained_model(configs), hardware=configs.hardware(row.hardware), task=row.task, dtype=row.dtype,
        gpus=row.gpus, sequence_length=row.sequence_length, global_batch_size=row.global_batch_size,
    )  # fmt: skip
    utilisation = mfu(workload, row.seconds, {})
    return (
        row.hardware,
        str(row.gpus),
        row.precision,
        FRAMEWORKS[row.engine],
        f"{row.seconds:.4g}",
        f"{row.tokens_per_step / row.seconds / row.gpus:,.0f}",
        f"{utilisation[0].percent:.1f}" if utilisation else "-",
        row.citation,
    )


if __name__ == "__main__":
    PAGE.write_text(page())
