"""Makes the pictures of docs/reports.md: real runs on this machine's CPU, real nights, a real TensorBoard.

.venv/bin/python docs/make_dashboard_pictures.py [DIR]

Needs MaxText's environment (made by the first run), Chromium, and the packages of the extra `dev`. Training takes
some ten minutes; with DIR, the runs are kept there, and taken from there the next time.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.browser import browser  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PICTURES = REPOSITORY / "docs" / "pictures"
RUN = "launch/run.py --backend=jax --model=llama2_tiny --steps=60 --set=micro_batch_size=4"
RUNS = [f"{RUN} --dtype={dtype} --gpus={gpus}" for dtype in ("bf16", "fp32") for gpus in (1, 2, 4)]
REPEATS = 3
NIGHTS = 11
NIGHT = "launch/nightly.py --suite=smoke --sweep=yes"
LONG = f"{RUN.replace('--steps=60', '--steps=100').replace('=4', '=16')} --dtype=bf16"
WIDTH = 1300


def main() -> None:
    with contextlib.ExitStack() as stack:
        place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place.mkdir(parents=True, exist_ok=True)
        if not (place / "results").is_dir():
            train(place)
        address = stack.enter_context(served(place))
        started = stack.enter_context(browser())
        charts(started, address)
        nights(started, address)
        table(started, address)
        one_run(started, address, place / "results")


def train(place: Path) -> None:
    peaks = [f"peak-{dtype}.json" for dtype in ("bf16", "fp32")]
    for dtype, peak in zip(("bf16", "fp32"), peaks, strict=True):
        called(place, f"launch/peak.py --backend=jax --model=llama2_tiny --dtype={dtype} --out={peak}")
    for _ in range(REPEATS):
        for command in RUNS:
            dtype = "bf16" if "bf16" in command else "fp32"
            called(place, f"{command} --measured_peak=peak-{dtype}.json")
    for _ in range(NIGHTS):
        called(place, NIGHT)
    called(place, f"{NIGHT} --inject_slowdown=0.5")
    called(place, f"{LONG} --measured_peak=peak-bf16.json")


def called(place: Path, command: str) -> None:
    """An exit code other than 0 is a result too: the slowed night has 3."""
    print(f"$ python {command}", flush=True)
    script, *arguments = command.split()
    subprocess.run([sys.executable, str(REPOSITORY / script), *arguments], cwd=place, check=False)


@contextlib.contextmanager
def served(place: Path) -> Iterator[str]:
    server = subprocess.Popen(
        [sys.executable, str(REPOSITORY / "launch/dashboard.py"), "--serve", "--port=0", "--refresh_seconds=0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=place,
        start_new_session=True,
    )
    try:
        assert server.stdout is not None
        found = ""
        for line in server.stdout:
            print(line, end="")
            found = found or "".join(re.findall(r"http://localhost:\d+", line)[:1])
            if line.startswith("Ctrl-C"):
                break
        yield found
    finally:
        os.kill(server.pid, signal.SIGINT)
        server.wait()


# --- the pictures ---------------------------------------------------------------------------------


@contextlib.contextmanager
def page(started: "Browser", url: str, height: int, width: int = WIDTH) -> "Iterator[Page]":
    context = started.new_context(viewport={"width": width, "height": height})
    opened = context.new_page()
    opened.goto(url)
    try:
        yield opened
    finally:
        context.close()


UNSMOOTHED = "_smoothingWeight=0"
SETTLE_MILLISECONDS = 4000  # for the last lines, which are drawn one by one


def charts(started: "Browser", address: str) -> None:
    with page(started, f"{address}/#custom_scalars&{UNSMOOTHED}&regexInput=%5Eseries%2F", 1000) as opened:
        all_points(opened)
        fold(opened, "Nights of smoke")
        save(opened, "dashboard-charts")


def nights(started: "Browser", address: str) -> None:
    url = f"{address}/#custom_scalars&{UNSMOOTHED}&regexInput=%5Enights%2F"
    with page(started, url, 900) as opened:
        all_points(opened)
        fold(opened, "Step time")
        save(opened, "dashboard-nights", 700)


def table(started: "Browser", address: str) -> None:
    with page(started, f"{address}/#hparams", 800, 1900) as opened:
        opened.locator("tf-hparams-table-view").get_by_text("llama2_tiny").first.wait_for()
        save(opened, "dashboard-table")


def one_run(started: "Browser", address: str, results: Path) -> None:
    """The longest run, step by step."""
    _, name = max(
        (json.loads(path.read_text())["steps"], path.parent.name) for path in results.glob("*/benchmark.json")
    )
    url = f"{address}/?runFilter={name}&tagFilter=perf%2F%7Ctelemetry%7Closs&smoothing=0#timeseries"
    with page(started, url, 1000) as opened:
        opened.locator("card-view").first.wait_for()
        opened.get_by_role("button", name="Settings").first.click()
        save(opened, "dashboard-run")


def all_points(opened: "Page") -> None:
    opened.get_by_text("Ignore outliers in chart scaling").click()


def fold(opened: "Page", title: str) -> None:
    heading = opened.locator("tf-category-paginated-view .heading", has_text=title).first
    heading.wait_for()
    heading.click()


def save(opened: "Page", name: str, height: int | None = None) -> None:
    opened.wait_for_timeout(SETTLE_MILLISECONDS)
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": height} if height else None
    opened.screenshot(path=PICTURES / f"{name}.png", clip=clip)  # type: ignore[arg-type]
    print(f"docs/pictures/{name}.png: {(PICTURES / f'{name}.png').stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
