"""Writes configs/references/published.csv from clones of the repositories that it cites; prints what is in and out.

.venv/bin/python docs/make_published_rows.py --dgxc=CLONE --bridge=CLONE --maxtext=CLONE --toolbox=CLONE

docs/figures.md has the rule for what is a row. A clone needs its tags and no work tree. A row that several tags
publish unchanged is written once, with the first tag that states all of it; so is what is left out.
"""

import argparse
import csv
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.model.published_rows import Reference  # noqa: E402
from benchmarks.text import markdown_table  # noqa: E402

TABLE = REPOSITORY / "configs/references/published.csv"
COLUMNS = [name for name in Reference.__struct_fields__ if name != "where"]
READ_ON = "2026-11-23"
AXES = ("tensor", "pipeline", "context", "virtual_pipeline", "fsdp", "data")

Row = dict[str, str]
Flops = dict[tuple[str, str], str]


class LeftOut(Exception):
    """Why something published is no row."""


class Line(NamedTuple):
    number: int
    cells: list[str]


class Table(NamedTuple):
    """A Markdown table: its first line, the others without the rule, and the text before it."""

    header: list[str]
    lines: list[Line]
    headings: list[str]  # the headings it is under and the last line before it, the nearest last


class Place(NamedTuple):
    repository: str
    tag: str
    file: str
    text: str


class Found(NamedTuple):
    """A published figure, as a row or with the reason why it is none."""

    what: str  # the configuration and its figure
    row: Row | None
    reason: str
    place: Place
    line: int


def figure(what: str, row: Callable[[], Row], place: Place, line: int) -> Found:
    try:
        return Found(what, row(), "", place, line)
    except LeftOut as reason:
        return Found(what, None, str(reason), place, line)


# --- reading ------------------------------------------------------------------------------------


def git(clone: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(clone), *arguments], check=True, capture_output=True, text=True).stdout


def places(clone: Path, repository: str, tags: Sequence[str], files: str) -> Iterator[Place]:
    """Every file of the given names at every tag; what is the same as at an earlier tag is read once."""
    seen = set()
    for tag in tags:
        for entry in git(clone, "ls-tree", "-r", tag).splitlines():
            blob, path = entry.split(None, 3)[2:]
            if re.fullmatch(files, path) and (blob, path) not in seen:
                seen.add((blob, path))
                yield Place(repository, tag, path, git(clone, "show", f"{tag}:{path}"))


def tables(text: str) -> Iterator[Table]:
    """All Markdown tables of a page."""
    headings: list[str] = []
    before = ""
    rows: list[Line] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.lstrip().startswith("|"):
            cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
            rows.append(Line(number, cells))
            continue
        if rows:
            lines = [row for row in rows[1:] if not re.fullmatch(r"[\s:|-]*", "".join(row.cells))]
            yield Table(rows[0].cells, lines, [*headings, before])
            rows = []
        if line.startswith("#") or line.startswith("**"):
            depth = len(line) - len(line.lstrip("#")) or 9
            headings = [one for one in headings if (len(one) - len(one.lstrip("#")) or 9) < depth] + [line]
        if line.strip():
            before = line


# --- NVIDIA's dgxc-benchmarking -----------------------------------------------------------------

DGXC_FILES = r"(llama3\.1|maxtext|ft_llama3|llama3/finetun\w+|hf-llama2)/README\w*\.md"
FIGURES = {
    "Training step time": "seconds_per_step",
    "Throughput in tokens": "tokens_per_second",
    "Model flops utilization": "mfu_percent",
    "Time to train 1T": "days_per_trillion_tokens",
}
LAYOUT_NAMES = {"TP": "tensor", "PP": "pipeline", "CP": "context", "VP": "virtual_pipeline", "FSDP": "fsdp"}
NONE = {"NA", "N/A", "n/a", "None", ""}
LAYERS = {"8b": 32, "70b": 80, "405b": 126}


def dgxc(clone: Path) -> Iterator[Found]:
    tags = sorted(git(clone, "tag").split())
    pages = list(places(clone, "NVIDIA/dgxc-benchmarking", tags, DGXC_FILES))
    flops = {key: value for place in reversed(pages) for key, value in stated_flops(place.text).items()}
    for place in pages:
        found = list(tables(place.text))
        layouts = [layout for table in found for layout in layout_lines(table)]
        for table in found:
            if "samples per second" in table.header[1]:
                yield from samples(place, table)
            elif table.lines and table.lines[0].cells[0].startswith(("Training step time", "Layers")):
                yield from dgxc_table(place, table, layouts, {**flops, **stated_flops(place.text)})
        yield from dgxc_examples(place)


def configuration(title: str) -> str:
    """A table's title without its layout and its container's version."""
    return re.sub(r" 24\.\d\d", "", title.split("(", maxsplit=1)[0]).strip()


def samples(place: Place, table: Table) -> Iterator[Found]:
    for heading, cell in zip(table.header[1:], table.lines[0].cells[1:], strict=False):
        why = "trained by Hugging Face's Trainer, which is no backend here"
        yield Found(f"{configuration(table.header[0])} {heading} {cell}", None, why, place, table.lines[0].number)


def layout_lines(table: Table) -> Iterator[Row]:
    """The layouts of a table of layouts, each with what it is for."""
    if not {"GPUs", "SeqLen"} <= set(table.header):
        return
    above = " ".join(table.headings)
    devices = re.findall(r"\b(H100|B200|GB200|GB300|B300)\b", above)
    tasks = {task.lower() for task in re.findall(r"\b(SFT|LoRA|LORA)\b", table.headings[-1])}
    purpose = {"device": devices[-1].lower() if devices else "", "task": "".join(tasks) if len(tasks) == 1 else ""}
    for line in table.lines:
        yield {**dict(zip(table.header, line.cells, strict=False)), **purpose}


def dgxc_table(place: Place, table: Table, layouts: Sequence[Row], flops: Flops) -> Iterator[Found]:
    """One row for each column: a table of NVIDIA's has the scales side by side."""
    title = table.header[0]
    by_name = {line.cells[0]: line for line in table.lines}
    step_time = next(line for name, line in by_name.items() if name.startswith("Training step time"))
    for column in range(1, len(table.header)):
        heading = table.header[column]
        scale = re.search(r"(\d+)x (\w+) GPUs", heading)
        if scale is None:
            continue
        cells = {name: line.cells[column] for name, line in by_name.items() if column < len(line.cells)}
        printed = step_time.cells[column]
        what = f"{configuration(title)} {scale[0]} {printed} s"
        row = partial(dgxc_row, place, f"{title} {heading}", scale[1], scale[2].lower(), cells, layouts, flops)
        yield figure(what, row, place, step_time.number)


def dgxc_row(
    place: Place, title: str, gpus: str, device: str, cells: Row, layouts: Sequence[Row], flops: Flops
) -> Row:
    family, size = re.search(r"llama ?([\d.]+) (\d+b)", title, re.IGNORECASE).groups()  # type: ignore[union-attr]
    if "SFT" in title:
        raise LeftOut("full fine-tuning, which is no task here")
    task = "lora" if "LORA" in title else "pretrain"
    precision = "FP8" if "FP8" in title else "BF16"
    maxtext = place.file.startswith("maxtext")
    layout = {
        **stated_layout(title),
        **{name: value for name, value in cells.items() if name in ("Layers", "GBS", "PP", "VP")},
    }
    for one in layouts:
        fits = one["GPUs"] == gpus and one["device"] in ("", device) and one["task"] in ("", task.replace("pre", ""))
        sized = one.get("Size", size).removesuffix("-Proxy") == size
        if fits and sized and precision in one.get("Precision", precision):
            layout = one
    if layout.get("Layers", str(LAYERS[size])) != str(LAYERS[size]):
        raise LeftOut("a model of fewer layers than its name says, at a scale that the whole model does not fit")
    if "MBS" not in layout or "GBS" not in layout:
        raise LeftOut("its tag does not state its layout and batch")
    row = {
        "model": f"llama{family.replace('.', '')}_{size}",
        "backend": "jax" if maxtext else "nemo",
        "engine": "maxtext" if maxtext else "nemo",
        "task": task,
        "hardware": device,
        "gpus": gpus,
        "dtype": precision.lower(),
        "precision": precision,
        "sequence_length": layout.get("SeqLen") or sequence_length(place.text),
        "global_batch_size": layout["GBS"],
        "micro_batch_size": layout["MBS"],
        "window": window(place.text),
        **parallelism(layout, int(gpus)),
        **{figure: printed(cells, name) for name, figure in FIGURES.items()},
        "flops": "stated" if task == "lora" else "recipe",
        "stated_flops_per_sequence": flops_of(flops[family, size], task),
    }
    if row["seconds_per_step"] == "":
        raise LeftOut("its step time is not printed")
    return row


def stated_layout(title: str) -> Row:
    return dict(re.findall(r"\b(TP|PP|CP|VP|MBS|GBS|FSDP)=(\d+|None)", title))


def parallelism(layout: Row, gpus: int) -> Row:
    """The axes of a layout; what is left of the GPUs holds replicas of the data."""
    if "dcn_FSDP" in layout:
        fsdp = int(layout["dcn_FSDP"]) * int(layout["ici_FSDP"])
        layout = {"FSDP": str(fsdp)}
    sizes = {name: number(layout.get(key, "")) for key, name in LAYOUT_NAMES.items()}
    devices = sizes["tensor"] * sizes["pipeline"] * sizes["context"] * sizes["fsdp"]
    if gpus % devices:
        raise LeftOut("its tag states a layout of other devices than the row's")
    return {**{name: str(size) for name, size in sizes.items()}, "data": str(gpus // devices)}


def number(cell: str) -> int:
    return 1 if cell in {*NONE, "0", "False"} else int(cell)


def printed(cells: dict[str, str], name: str) -> str:
    found = next((cell for title, cell in cells.items() if title.startswith(name)), "")
    return "" if found in NONE else found.removesuffix("%").strip()


def sequence_length(text: str) -> str:
    """Of the first worked example: sequence length * batch / seconds."""
    found = re.search(r"E\.g\. (\d+) \* \d+ / ", text)
    if found is None:
        raise LeftOut("its tag does not state its sequence length")
    return found[1]


def window(text: str) -> str:
    span = re.search(r"analyze iterations (\d+-\d+)", text)
    if span:
        return span[1]
    return "mean of the last 20" if "last 20 training steps" in text else "last"


def stated_flops(text: str) -> dict[tuple[str, str], str]:
    """The FLOPs of a sequence that a page computes with, by family and size; a page on LoRA names no family."""
    found = re.findall(r"model flops for llama ?([\d.]*) (\d+b)\b.*?([\d.]+)E\+(\d+)", text, re.IGNORECASE)
    return {(family or "3", size.lower()): f"{digits}e{power}" for family, size, digits, power in found}


def flops_of(stated: str, task: str) -> str:
    """LoRA is two thirds of them, its pages say."""
    return f"{float(stated) * 2 / 3:.5g}" if task == "lora" else stated


EXAMPLE = r"E\.g\. \d+ \* \d+ / ([\d.]+) +=|train_step_timing in s(?:=|: )([\d.]+)|Success +([\d.]+)"


def dgxc_examples(place: Place) -> Iterator[Found]:
    """Worked examples and sample outputs beside the tables. The few that are rows are written out in EXAMPLES."""
    lines = place.text.splitlines()
    for at, line in enumerate(lines, 1):
        example = re.search(EXAMPLE, line)
        if example is None:
            continue
        seconds = next(found for found in example.groups() if found)
        what = f"{place.file} example of {seconds} s"
        row = EXAMPLES.get((place.file, seconds)) if example[1] else None
        why = "" if row else "a worked example beside a table, or of a run that is not stated"
        yield Found(what, row, why, place, at)


# (file, seconds): what its page states in sentences and in tables of layouts. The LoRA page names no framework; it is
# taken for NeMo, whose script its sample output is of.
EXAMPLES: dict[tuple[str, str], Row] = {
    ("llama3.1/README.md", "9.473"): {
        "model": "llama31_405b", "backend": "nemo", "engine": "nemo", "task": "pretrain", "hardware": "gb200",
        "gpus": "128", "dtype": "bf16", "precision": "BF16", "sequence_length": "8192", "global_batch_size": "64",
        "micro_batch_size": "1", "tensor": "4", "pipeline": "8", "context": "2", "virtual_pipeline": "8", "fsdp": "1",
        "data": "2", "window": "35-44", "seconds_per_step": "9.473", "tokens_per_second": "55346",
        "mfu_percent": "46.75", "days_per_trillion_tokens": "209.12", "flops": "recipe",
        "stated_flops_per_sequence": "2.17e16",
    },
    ("llama3.1/README.md", "5.74"): {
        "model": "llama31_405b", "backend": "nemo", "engine": "bridge", "task": "pretrain", "hardware": "gb200",
        "gpus": "128", "dtype": "fp8", "precision": "FP8-CS", "sequence_length": "8192", "global_batch_size": "64",
        "micro_batch_size": "1", "tensor": "2", "pipeline": "1", "context": "1", "virtual_pipeline": "1",
        "fsdp": "64", "data": "1", "window": "35-44", "seconds_per_step": "5.74", "tokens_per_second": "91339",
        "tflops_per_gpu": "1636.80", "days_per_trillion_tokens": "126.72", "flops": "causal",
    },
    ("llama3/finetune/README.md", "4.229"): {
        "model": "llama3_70b", "backend": "nemo", "engine": "nemo", "task": "lora", "hardware": "gb200", "gpus": "8",
        "dtype": "bf16", "precision": "BF16", "sequence_length": "2048", "global_batch_size": "64",
        "micro_batch_size": "1", "tensor": "1", "pipeline": "4", "context": "1", "virtual_pipeline": "20",
        "fsdp": "1", "data": "2", "window": "35-44", "seconds_per_step": "4.229", "tokens_per_second": "30991.25",
        "mfu_percent": "44.84", "days_per_trillion_tokens": "373.6", "flops": "lora",
        "stated_flops_per_sequence": "5.8067e14",
    },
}  # fmt: skip


# --- Megatron-Bridge ------------------------------------------------------------------------------

BRIDGE_FILES = r"docs/performance-summary(-archive)?\.md"
DENSE = {"LLAMA3_8B": "llama3_8b", "LLAMA3_70B": "llama3_70b", "LLAMA3.1_405B": "llama31_405b"}
PAIR = r"([^ ()]+) \(([^()]+)\)"


def bridge(clone: Path) -> Iterator[Found]:
    releases = [tag for tag in git(clone, "tag", "--sort=version:refname").split() if re.fullmatch(r"v[\d.]+", tag)]
    for place in places(clone, "NVIDIA-NeMo/Megatron-Bridge", releases, BRIDGE_FILES):
        for table in tables(place.text):
            if "Tokens / sec / GPU" in table.header:
                for line in table.lines:
                    yield from bridge_line(place, table, line, whole_sequences(table))


def container(table: Table) -> str:
    return next(heading for heading in table.headings if heading.endswith("NeMo Container"))


def whole_sequences(table: Table) -> bool:
    """All its speeds are of a whole number of sequences/s: that is what they were rounded to."""
    places = [table.header.index(name) for name in ("Tokens / sec / GPU", "#-GPUs", "Sequence Length")]
    found = [[int(line.cells[place].split()[0]) for place in places] for line in table.lines]
    return all(speed * gpus % length == 0 for speed, gpus, length in found)


def bridge_line(place: Place, table: Table, line: Line, whole: bool) -> Iterator[Found]:
    """One row, or two where a second precision stands in parentheses beside the first."""
    cells = dict(zip(table.header, line.cells, strict=False))
    above = " ".join(table.headings)
    named = re.search(r"(?:Model: |\| )?\b(LLAMA3[\w.]*)", cells.get("Model", above))
    if named is None:
        return
    cells["System"] = cells.get("System") or re.findall(r"System: (\S+)", above)[-1]
    cells.setdefault("Precision", "FP8 (FP8-MX)" if "(" in cells["Tokens / sec / GPU"] else "FP8")
    for which in (1, 2):
        one = {name: chosen(cell, which) for name, cell in cells.items()}
        if which == 2 and "(" not in cells["Tokens / sec / GPU"]:
            return
        what = f"{container(table)} {' '.join(one.values())}"
        yield figure(what, partial(bridge_row, DENSE[named[1]], one, above, whole), place, line.number)


def chosen(cell: str, which: int) -> str:
    pair = re.fullmatch(PAIR, cell)
    return pair[which] if pair else cell


def bridge_row(model: str, cells: Row, above: str, whole: bool) -> Row:
    if "SFT Performance" in above:
        raise LeftOut("full fine-tuning, which is no task here")
    precision = cells["Precision"]
    if precision == "NVFP4":
        raise LeftOut("NVFP4, a precision that no device here has a peak of")
    task = "lora" if "LoRA Performance" in above else "pretrain"
    gpus = int(cells["#-GPUs"])
    sizes = {name: number(cells.get(key, "")) for key, name in LAYOUT_NAMES.items()}
    replicas = gpus // (sizes["tensor"] * sizes["pipeline"] * sizes["context"])
    shards = cells.get("FSDP", "0") != "0"
    return {
        **{name: str(size) for name, size in sizes.items()},
        "model": model,
        "backend": "nemo",
        "engine": "bridge",
        "task": task,
        "hardware": cells["System"].removeprefix("DGX-").lower(),
        "gpus": str(gpus),
        "dtype": "bf16" if precision == "BF16" else "fp8",
        "precision": precision,
        "sequence_length": cells["Sequence Length"],
        "global_batch_size": cells["GBS"],
        "micro_batch_size": cells["MBS"],
        "window": "not stated",
        "fsdp": str(replicas if shards else 1),
        "data": str(1 if shards else replicas),
        "tokens_per_second_per_gpu": cells["Tokens / sec / GPU"],
        "resolution": str(int(cells["Sequence Length"]) // gpus) if whole else "",
        "tflops_per_gpu": cells["Model TFLOP / sec / GPU"],
        "flops": "lora" if task == "lora" else "causal",
    }


# --- MaxText's own pages, and JAX-Toolbox's ---------------------------------------------------------

MAXTEXT_FILES = r"(docs/reference/models/tiering|.*/a3/llama_2_7b/README)\.md"


def maxtext(clone: Path) -> Iterator[Found]:
    """What they publish for Llama is no row, as it stands."""
    tags = git(clone, "tag", "--sort=creatordate").split()
    for place in places(clone, "AI-Hypercomputer/maxtext", tags, MAXTEXT_FILES):
        on_tpus = place.file.endswith("tiering.md")
        on, alone = "on TPUs, with about so many tokens/s", "TFLOP/s alone, by FLOPs that are not stated"
        for table in tables(place.text):
            for line in table.lines:
                if not on_tpus or "Llama" in line.cells[0]:
                    what = " ".join([line.cells[0], *line.cells[2 if on_tpus else 1 :]])
                    yield Found(what, None, on if on_tpus else alone, place, line.number)


def toolbox(clone: Path) -> Iterator[Found]:
    """The repository has no tags: its commit is cited."""
    commit = git(clone, "rev-parse", "--short=8", "HEAD").strip()
    for place in places(clone, "NVIDIA/JAX-Toolbox", [commit], r"docs/frameworks/maxtext/README\.md"):
        for table in tables(place.text):
            if "Step Time (s)" not in table.header:
                continue
            for line in table.lines:
                cells = dict(zip(table.header, line.cells, strict=True))
                row = {
                    "model": f"llama2_{cells['Size'].lower()}", "backend": "jax", "engine": "maxtext",
                    "task": "pretrain", "hardware": cells["GPU"].split()[0].lower(), "gpus": cells["#GPUs"],
                    "dtype": cells["Precision"].lower(), "precision": cells["Precision"],
                    "sequence_length": cells["Sequence Length"], "global_batch_size": cells["GBS"],
                    "tensor": cells["TP"], "pipeline": "1", "context": "1", "virtual_pipeline": "1",
                    "fsdp": cells["FSDP"], "data": cells["DP"], "micro_batch_size": cells["BS / GPU"],
                    "window": "not stated", "seconds_per_step": cells["Step Time (s)"], "flops": "recipe",
                }  # fmt: skip
                yield Found(" ".join(line.cells), row, "", place, line.number)


READERS: dict[str, Callable[[Path], Iterator[Found]]] = {
    "dgxc": dgxc, "bridge": bridge, "maxtext": maxtext, "toolbox": toolbox,
}  # fmt: skip


# --- writing ------------------------------------------------------------------------------------


def identity(row: Row) -> tuple[str, ...]:
    return tuple(row.get(name, "") for name in COLUMNS if name not in ("tag", "file", "line", "date"))


def collected(published: Iterable[Found]) -> tuple[list[Row], list[Found]]:
    """Every row once, and what is left out of them, once too."""
    rows: dict[tuple[str, ...], Row] = {}
    out: dict[tuple[str, str], Found] = {}
    taken = set()
    for found in published:
        key = (found.place.repository, found.what)
        if found.row is None:
            out.setdefault(key, found)
            continue
        cited = {"source": found.place.repository, "tag": found.place.tag, "file": found.place.file}
        row = {**found.row, **cited, "line": str(found.line), "date": READ_ON}
        rows.setdefault(identity(row), row)
        taken.add(key)
    return list(rows.values()), [found for key, found in out.items() if key not in taken]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in READERS:
        parser.add_argument(f"--{name}", type=Path, required=True)
    given = vars(parser.parse_args())
    rows, out = collected(found for name, read in READERS.items() for found in read(given[name]))
    with TABLE.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    report(rows, out)


def report(rows: Sequence[Row], out: Sequence[Found]) -> None:
    sources = Counter(row["source"] for row in rows)
    print(markdown_table(["source", "rows"], [[source, str(count)] for source, count in sources.items()]), end="\n\n")
    reasons = Counter((found.place.repository, found.reason) for found in out)
    titles = ["left out of", "because", "figures"]
    print(markdown_table(titles, [[source, reason, str(count)] for (source, reason), count in reasons.items()]))


if __name__ == "__main__":
    main()
