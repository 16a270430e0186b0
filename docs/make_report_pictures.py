"""Makes the pictures of pages and dashboards in docs/how-to: real runs on this machine's CPU, as Chromium shows them.

.venv/bin/python docs/make_report_pictures.py [DIR]

Needs Linux, both backends' environments (made by the first runs), Chromium, and the packages of the extra `dev`.
Training takes about twenty minutes. With DIR, the runs are kept there, and the next time only missing runs are made.
The first night is copied to ten earlier days with slightly different step times. The last night is slowed on purpose.
"""

import contextlib
import io
import json
import os
import random
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

from tests.browser import DESK, browser, page_of  # noqa: E402
from tests.launch.campaigns.nights.earlier_nights import copy_to_earlier_days  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PICTURES = REPOSITORY / "docs" / "pictures"
RUN = "launch/run.py --backend=jax --model=llama2_tiny"
PEAK = "launch/peak.py --backend=jax --model=llama2_tiny"
LARGE = "--set=micro_batch_size=16"
NIGHT = "launch/nightly.py --suite=smoke"
MADE = {  # what a command makes -> the command, as a reader types it
    "peak-bf16.json": f"{PEAK} --dtype=bf16 --out=peak-bf16.json",
    "peak-fp32.json": f"{PEAK} --dtype=fp32 --out=peak-fp32.json",
    "one": f"{RUN} --steps=300 --dtype=bf16 {LARGE} --measured_peak=peak-bf16.json --output_dir=one",
    "several": f"{RUN} --steps=40 --dtype=bf16 --gpus=1,2,4 --repeats=3 --output_dir=several",
    "compared": f"{RUN} --steps=60 --dtype=bf16,fp32 --repeats=4 {LARGE} --output_dir=compared",
}
COMPARED = "launch/compare.py dtype=bf16 dtype=fp32 --output_dir=compared --explain --html=comparison.html"
KILLED = f"{RUN} --steps=4000 --dtype=bf16 --output_dir=killed"
STEPS_BEFORE_KILLED = 100
REPEATS, EARLIER_NIGHTS = 3, 10
PAGES = {"run": 1720, "failed": 1250, "sweep": 1450, "comparison": 1600, "night": 1900}  # pixels shown
LAPTOP = 1440  # pixels wide
TABS = (  # the picture of a tab of the dashboard, what is there once it is drawn, its height
    ("dashboard-landing", "", "card-view", 1000),
    ("dashboard-table", "#hparams", "tf-hparams-table-view vaadin-grid", 800),
)
SETTLE_MILLISECONDS = 8000  # for the last lines of a chart, which are drawn one by one


def main() -> None:
    with contextlib.ExitStack() as stack:
        place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place.mkdir(parents=True, exist_ok=True)
        if not (place / "launch").exists():  # pages quote commands
            (place / "launch").symlink_to(REPOSITORY / "launch")
        train(place)
        started = stack.enter_context(browser())
        for name, path in pages(place).items():
            with page_of(started, path.resolve().as_uri()) as page:
                height = min(PAGES[name], int(page.evaluate("document.documentElement.scrollHeight")))
                page.set_viewport_size({"width": DESK, "height": height})
                save(page, f"report-{name}")
        address = stack.enter_context(served(place))
        for name, tab, found, height in TABS:
            with opened(started, f"{address}/{tab}", found, height) as page:
                save(page, name)
        longest = f"runFilter={longest_run(place)}&tagFilter=perf%2F%7Ctelemetry%7Closs&smoothing=0"
        with opened(started, f"{address}/", "card-view", 1000) as page:  # it sets what TensorBoard shows
            page.goto(f"{address}/?{longest}#timeseries")
            page.locator("card-view").first.wait_for()
            save(page, "dashboard-run")


# --- runs -----------------------------------------------------------------------------------------


def train(place: Path) -> None:
    for made, command in MADE.items():
        if not (place / made).exists():
            call(place, command)
    if not (place / "killed").is_dir():
        train_and_kill(place)
    if not (place / "results").is_dir():
        train_results(place)


def train_results(place: Path) -> None:
    """Series of runs, a long run, and nights of a suite."""
    for _ in range(REPEATS):
        for dtype in ("bf16", "fp32"):
            for gpus in (1, 2, 4):
                flags = f"--dtype={dtype} --gpus={gpus} --measured_peak=peak-{dtype}.json"
                call(place, f"{RUN} --steps=60 --set=micro_batch_size=4 {flags}")
    call(place, NIGHT)
    chance = random.Random(21)
    factors = [(chance.gauss(1, 0.015), chance.gauss(1, 0.003)) for _ in range(EARLIER_NIGHTS)]
    copy_to_earlier_days(place / "results", "smoke", factors)
    call(place, f"{NIGHT} --inject_slowdown=0.5")
    call(place, f"{RUN} --steps=100 {LARGE} --dtype=bf16 --measured_peak=peak-bf16.json")


def train_and_kill(place: Path) -> None:
    """Kill the worker of a run while it trains, as a machine without memory does."""
    print(f"$ python {KILLED}", flush=True)
    launcher = subprocess.Popen([sys.executable, *KILLED.split()], cwd=place)
    while launcher.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            launcher.wait(timeout=1)
        steps = sum(path.read_bytes().count(b'"step"') for path in place.glob("killed/*/attempt-1/perf/events-*"))
        if steps > STEPS_BEFORE_KILLED:
            os.kill(worker_of(launcher.pid), signal.SIGKILL)
            break
    launcher.wait()


def worker_of(launcher: int) -> int:
    """Return the process below the launcher that trains."""
    waiting = [launcher]
    while waiting:
        process = waiting.pop()
        if b"--events_dir=" in Path(f"/proc/{process}/cmdline").read_bytes():
            return process
        waiting += [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    raise SystemExit(f"process {launcher} has no worker")


def call(place: Path, command: str) -> None:
    """An exit code other than 0 is a result too: the slowed night has 3."""
    print(f"$ python {command}", flush=True)
    subprocess.run([sys.executable, *command.split()], cwd=place, check=False)


# --- pages and the dashboard ------------------------------------------------------------------------


def pages(place: Path) -> dict[str, Path]:
    (run,) = place.glob("one/*/result.json")
    (failed,) = place.glob("killed/*/result.json")
    night = max(place.glob("results/nights/*/*.json"))
    shown = {
        "run": [run.parent],
        "failed": [failed.parent],
        "sweep": [min(place.glob("several/sweep-*.json"))],
        "night": [night],
    }
    for name, paths in shown.items():
        call(place, f"launch/report.py html {name}.html {' '.join(str(path.relative_to(place)) for path in paths)}")
    call(place, COMPARED)
    return {name: place / f"{name}.html" for name in PAGES}


@contextlib.contextmanager
def served(place: Path) -> Iterator[str]:
    command = [sys.executable, "launch/dashboard.py", "--serve", "--port=0", "--refresh_seconds=0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=place, start_new_session=True)
    try:
        assert server.stdout is not None
        found = ""
        for line in server.stdout:
            found = found or "".join(re.findall(r"http://localhost:\d+", line)[:1])
            if line.startswith("Ctrl-C"):
                break
        yield found
    finally:
        os.kill(server.pid, signal.SIGINT)
        server.wait()


@contextlib.contextmanager
def opened(started: "Browser", url: str, found: str, height: int) -> "Iterator[Page]":
    """Return a page of the dashboard once `found` is visible."""
    context = started.new_context(viewport={"width": LAPTOP, "height": height})
    page = context.new_page()
    page.goto(url)
    page.locator(found).first.wait_for()
    try:
        yield page
    finally:
        context.close()


def longest_run(place: Path) -> str:
    """Return what the dashboard calls the longest run."""
    benchmarks = (place / "results").glob("*/benchmark.json")
    _, name = max((json.loads(path.read_text())["steps"], path.parent.name) for path in benchmarks)
    return name.rpartition("-")[2]


def save(page: "Page", name: str) -> None:
    from PIL import Image

    page.wait_for_timeout(SETTLE_MILLISECONDS if name.startswith("dashboard") else 0)
    picture = Image.open(io.BytesIO(page.screenshot()))
    target = PICTURES / f"{name}.png"
    picture.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE).save(target, optimize=True)
    print(f"docs/pictures/{target.name}: {target.stat().st_size // 1000} kB", flush=True)


if __name__ == "__main__":
    main()
