"""Telemetry and the ranks' differences as labelled lines of text, for the table at the end of a run. Pure."""

from benchmarks.telemetry.gpu import GpuTelemetry
from benchmarks.telemetry.ranks import CAVEAT, RankSpread, RankTime
from benchmarks.telemetry.summary import Telemetry

Rows = list[tuple[str, str]]


def telemetry_rows(telemetry: Telemetry | None, ranks: RankSpread | None = None) -> Rows:
    """What is known of the machines and of the ranks; nothing where neither is."""
    rows: Rows = []
    if telemetry is not None:
        rows += gpu_rows(telemetry.gpu) if telemetry.gpu else []
        rows.append(("host", _host_text(telemetry)))
    return rows + rank_rows(ranks)


def _host_text(telemetry: Telemetry) -> str:
    words = []
    if telemetry.cpu_utilisation_mean is not None:
        words.append(f"CPU {telemetry.cpu_utilisation_mean:.0%} busy")
    if telemetry.host_memory_bytes_max is not None:
        words.append(f"at most {telemetry.host_memory_bytes_max / 1e9:.3g} GB of memory used")
    if not words:
        return "not known: " + telemetry.null_because["cpu_utilisation_mean"]
    return ", ".join(words) + ("" if telemetry.nodes == 1 else f" ({telemetry.nodes} nodes)")


def gpu_rows(gpu: GpuTelemetry) -> Rows:
    rows = [("energy", _energy_text(gpu))]
    if gpu.sm_clock_mhz_median is not None:
        most = f" of {gpu.sm_clock_mhz_highest} at most" if gpu.sm_clock_mhz_highest else ""
        rows.append(("SM clock", f"{gpu.sm_clock_mhz_median:.0f} MHz median{most}{_slowest_text(gpu)}"))
    if gpu.throttled is not None:
        held = [f"{reason.replace('_', ' ')} {share:.0%}" for reason, share in gpu.throttled.items() if share]
        rows.append(("throttled", ", ".join(held) + " of the samples" if held else "never"))
    errors = {"ECC errors": gpu.ecc_uncorrected, "remapped rows": gpu.remapped_rows, "PCIe replays": gpu.pcie_replays}
    if new := [f"{count} new {what}" for what, count in errors.items() if count]:
        rows.append(("GPU errors", ", ".join(new)))
    return rows + [("GPU notes", "\n".join(gpu.notes))] * bool(gpu.notes)


def _energy_text(gpu: GpuTelemetry) -> str:
    if gpu.energy_joules is None:
        return "not known: " + gpu.null_because["energy_joules"]
    words = [f"{gpu.energy_joules / 1e3:.4g} kJ"]
    if gpu.joules_per_token is not None:
        words.append(f"{gpu.joules_per_token:.3g} J a token")
    if gpu.power_watts_mean is not None:
        limit = f" of {gpu.power_limit_watts:.0f}" if gpu.power_limit_watts else ""
        words.append(f"{gpu.power_watts_mean:.0f} W{limit} a GPU")
    return ", ".join(words)


def _slowest_text(gpu: GpuTelemetry) -> str:
    slow = gpu.slowest
    if slow is None or gpu.gpus == 1 or not gpu.sm_clock_mhz_median:
        return ""
    below = slow.sm_clock_mhz / gpu.sm_clock_mhz_median - 1
    return f"; the slowest is GPU {slow.index} of {slow.host}, {slow.sm_clock_mhz:.0f} MHz ({below:+.1%})"


def rank_rows(spread: RankSpread | None) -> Rows:
    """A rank alone has no row."""
    if spread is None:
        return []
    lines = [
        f"{spread.ranks} ranks, {spread.spread:.2%} between the slowest ({_named(spread.slowest)}) "
        f"and the fastest ({_named(spread.fastest)})"
    ]
    if spread.latest:
        last = spread.latest[0]
        lines.append(f"the last began {last.seconds_late:.3g} s after the first (rank {last.rank} on {last.host})")
    if spread.without_times:
        lines.append(f"{spread.without_times} more without a time for a counted step")
    lines.append(CAVEAT)
    return [("ranks", "\n".join(lines))]


def _named(time: RankTime) -> str:
    return f"rank {time.rank}" + (f" on {time.host}" if time.host else "")
