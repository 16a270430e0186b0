"""Numbers, names and lists as text for people. No screen, no colours."""

import re
from collections.abc import Collection, Mapping, Sequence

from benchmarks.rendering.columns import Rows, aligned, some, spans_text
from benchmarks.values import Benchmark, Parallelism, Recipe, Step

OF_A_RANK = re.compile(r"((?:phase \S+: )?)rank (\d{1,9})(:?) (.+)")
BREAKS = re.compile(r"(?:\s|\\n)+")  # a message that was quoted holds its line breaks as \n
MOST_REASONS = 4


def seconds_text(seconds: float) -> str:
    """Four significant digits with the unit that suits: 6.999 s, 15.21 ms."""
    if seconds >= 1:
        return f"{seconds:.4g} s"
    return f"{seconds * 1e3:.4g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.4g} us"


def count_text(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def bytes_text(size: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size / 1e3:.1f} kB"


def layout_text(layout: Parallelism) -> str:
    return " x ".join(f"{word} {size}" for word, size in layout.words()) or "one device"


# --- a result -----------------------------------------------------------------------------------


def title(benchmark: Benchmark) -> str:
    return (
        f"{benchmark.model.name} {benchmark.task} {benchmark.dtype} · {benchmark.backend} ({benchmark.engine}) · "
        f"{benchmark.gpus} x {benchmark.hardware.name}"
    )


def folded(reasons: Sequence[str]) -> list[str]:
    """Each reason in one line, and what several ranks say alike once: "64 ranks (0-63): no step was trained"."""
    ranks: dict[tuple[str, str, str], set[int]] = {}
    for reason in reasons:
        line = BREAKS.sub(" ", reason).strip()
        found = OF_A_RANK.fullmatch(line)
        before, rank, sign, what = found.groups() if found else ("", "", "", line)
        ranks.setdefault((before, sign, what), set()).update([int(rank)] if rank else [])
    return [f"{before}{_ranks_text(found, sign)}{what}" for (before, sign, what), found in ranks.items()]


def _ranks_text(ranks: Collection[int], sign: str) -> str:
    if len(ranks) < 2:
        return "".join(f"rank {rank}{sign} " for rank in ranks)
    several = f"{len(ranks)} ranks ({spans_text(ranks)})"
    return f"{several}: " if sign else f"each of {several} "  # before a verb of one rank


def reasons_text(reasons: Sequence[str]) -> str:
    """The first few, in one line; empty where there is none."""
    return some(folded(reasons), MOST_REASONS, "; ")


def step_text(
    step: Step,
    total_steps: int,
    typical_seconds: float | None,
    seconds_left: float | None,
) -> str:
    """The live line: where the run is, how fast, and how long it still takes."""
    words = [f"step {step.step + 1}/{total_steps}"]
    if seconds_left is not None:  # early: a narrow terminal cuts the end off
        words.append(f"{duration_text(seconds_left)} left")
    if typical_seconds:
        words.append(f"{seconds_text(typical_seconds)}/step")
        if step.tokens:
            words.append(f"{count_text(step.tokens / typical_seconds)} tokens/s")
    if step.loss is not None:
        words.append(f"loss {step.loss:.3f}")
    return " · ".join(words)


def duration_text(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


# --- what there is ------------------------------------------------------------------------------


def recipe_rows(recipes: Sequence[Recipe]) -> Rows:
    rows = []
    for recipe in recipes:
        dtypes = "; ".join(f"{name}: {', '.join(kinds)}" for name, kinds in recipe.dtypes.items())
        scales = ", ".join(
            f"{one.gpus} ({', '.join(one.hardware)})" if one.hardware else f"{one.gpus}" for one in recipe.layouts
        )
        text = f"{recipe.title}\nmodels {', '.join(recipe.models)} · {dtypes} · devices {scales}"
        rows.append((recipe.name, text))
    return rows


def listing_text(sections: Mapping[str, Rows]) -> str:
    lines: list[str] = []
    for heading, rows in sections.items():
        lines += [heading, *(aligned(rows) if rows else ["  none"]), ""]
    return "\n".join(lines).rstrip()
