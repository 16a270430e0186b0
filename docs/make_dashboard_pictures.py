"""Makes the pictures of docs/reports.md: real runs on this machine's CPU, two nights, a real TensorBoard.

.venv/bin/python docs/make_dashboard_pictures.py [DIR]

Needs both backends' environments (made by the first runs), Chromium, and the packages of the extra `dev`. Training
takes some ten minutes; with DIR, the runs are kept there, and taken from there the next time. The first night is
copied to ten earlier days, with slightly other step times; the last one is slowed on purpose.
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

from tests.browser import browser  # noqa: E402
from tests.launch.campaigns.nights.earlier_nights import copy_to_earlier_days  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PICTURES = REPOSITORY / "docs" / "pictures"
RUN = "launch/run.py --backend=jax --model=llama2_tiny --steps=60 --set=micro_batch_size=4"
RUNS = [f"{RUN} --dtype={dtype} --gpus={gpus}" for dtype in ("bf16", "fp32") for gpus in (1, 2, 4)]
REPEATS = 3
EARLIER_NIGHTS = 10
NIGHT = "launch/nightly.py --suite=smoke"
LONG = f"{RUN.replace('--steps=60', '--steps=100').replace('=4', '=16')} --dtype=bf16"
LAPTOP = 1440  # pixels wide
SHOTS = (  # the picture, the tab, what is there once it is drawn, its height
    ("dashboard-landing", "", "card-view", 1000),
    ("dashboard-table", "#hparams", "tf-hparams-table-view vaadin-grid", 800),
)


def main() -> None:
    with contextlib.ExitStack() as stack:
        place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place.mkdir(parents=True, exist_ok=True)
        if not (place / "results").is_dir():
            train(place)
        address = stack.enter_context(served(place))
        started = stack.enter_context(browser())
        for name, tab, found, height in SHOTS:
            with page(started, f"{address}/{tab}", height) as opened:
                opened.locator(found).first.wait_for()
                save(opened, name)
        nights = "smoothing=0&runFilter=%5Enights%2F&tagFilter=%5E2%20nights"
        filtered(started, address, "dashboard-nights", nights, 620)
        filtered(started, address, "dashboard-run", longest(place / "results"), 1000)


def train(place: Path) -> None:
    peaks = [f"peak-{dtype}.json" for dtype in ("bf16", "fp32")]
    for dtype, peak in zip(("bf16", "fp32"), peaks, strict=True):
        called(place, f"launch/peak.py --backend=jax --model=llama2_tiny --dtype={dtype} --out={peak}")
    for _ in range(REPEATS):
        for command in RUNS:
            dtype = "bf16" if "bf16" in command else "fp32"
            called(place, f"{command} --measured_peak=peak-{dtype}.json")
    called(place, NIGHT)
    chance = random.Random(21)
    factors = [(chance.gauss(1, 0.015), chance.gauss(1, 0.003)) for _ in range(EARLIER_NIGHTS)]
    copy_to_earlier_days(place / "results", "smoke", factors)
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
def page(started: "Browser", url: str, height: int) -> "Iterator[Page]":
    context = started.new_context(viewport={"width": LAPTOP, "height": height})
    opened = context.new_page()
    opened.goto(url)
    try:
        yield opened
    finally:
        context.close()


def filtered(started: "Browser", address: str, name: str, query: str, height: int) -> None:
    with page(started, f"{address}/", height) as opened:  # which sets what TensorBoard shows
        opened.locator("card-view").first.wait_for()
        opened.goto(f"{address}/?{query}#timeseries")
        opened.locator("card-view").first.wait_for()
        save(opened, name)


def longest(results: Path) -> str:
    """What shows the longest run alone, step by step."""
    _, name = max(
        (json.loads(path.read_text())["steps"], path.parent.name) for path in results.glob("*/benchmark.json")
    )
    return f"runFilter={name.rpartition('-')[2]}&tagFilter=perf%2F%7Ctelemetry%7Closs&smoothing=0"


def save(opened: "Page", name: str) -> None:
    from PIL import Image

    opened.wait_for_timeout(SETTLE_MILLISECONDS)
    picture = Image.open(io.BytesIO(opened.screenshot()))
    target = PICTURES / f"{name}.png"
    picture.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE).save(target, optimize=True)
    print(f"docs/pictures/{target.name}: {target.stat().st_size / 1000:.0f} kB")


SETTLE_MILLISECONDS = 8000  # for the last lines, which are drawn one by one


if __name__ == "__main__":
    main()
