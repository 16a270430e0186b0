"""Makes the pictures of docs/reports.md: real runs on this machine's CPU, and their pages as Chromium shows them.

.venv/bin/python docs/make_report_pictures.py [DIR]

Needs Linux, MaxText's environment (made by the first run), Chromium, and the packages of the extra `dev`. Training
takes some ten minutes; with DIR, the runs are kept there, and taken from there the next time. DIR may be that of
make_dashboard_pictures.py, too: then the newest of its nights and the page of its runs are shown, which this script
does not run.
"""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.browser import DESK, browser, page_of  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PICTURES = REPOSITORY / "docs" / "pictures"
RUN = "launch/run.py --backend=jax --model=llama2_tiny"
COMMANDS = (
    "launch/peak.py --backend=jax --model=llama2_tiny --dtype=bf16 --out=peak.json",
    f"{RUN} --steps=300 --dtype=bf16 --set=micro_batch_size=16 --measured_peak=peak.json --output_dir=one",
    f"{RUN} --steps=40 --dtype=bf16 --gpus=1,2,4 --repeats=3 --output_dir=several",
    f"{RUN} --steps=60 --dtype=bf16,fp32 --repeats=4 --set=micro_batch_size=16 --output_dir=compared",
)
KILLED = f"{RUN} --steps=4000 --dtype=bf16 --output_dir=killed"
COMPARED = "launch/compare.py dtype=bf16 dtype=fp32 --output_dir=compared --explain --html=comparison.html"
NIGHTS = "results/nights/*/*.json"
MANY = 18  # runs on a page
STEPS_BEFORE_KILLED = 100


SHOTS = {  # the page -> the height of its upper part that is shown
    "run": 1720,
    "failed": 1250,
    "sweep": 1450,
    "comparison": 1600,
    "night": 1900,
    "many": 1250,
}


def main() -> None:
    with contextlib.ExitStack() as stack:
        place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place.mkdir(parents=True, exist_ok=True)
        if not (place / "launch").exists():  # commands as a reader types them; pages quote them
            (place / "launch").symlink_to(REPOSITORY / "launch")
        if not (place / "killed").is_dir():
            train(place)
        pages(place)
        started = stack.enter_context(browser())
        PICTURES.mkdir(parents=True, exist_ok=True)
        for name, height in SHOTS.items():
            if (place / f"{name}.html").exists():
                take(started, place / f"{name}.html", height)


def train(place: Path) -> None:
    for command in COMMANDS:
        called(place, command)
    killed(place)


def killed(place: Path) -> None:
    """A run whose worker is killed while it trains, as a machine without memory does it."""
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
    """The process below the launcher that trains: the one that was told where to write its events."""
    waiting = [launcher]
    while waiting:
        process = waiting.pop()
        if b"--events_dir=" in Path(f"/proc/{process}/cmdline").read_bytes():
            return process
        waiting += [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    raise SystemExit(f"process {launcher} has no worker")


def called(place: Path, command: str) -> None:
    print(f"$ python {command}", flush=True)
    subprocess.run([sys.executable, *command.split()], cwd=place, check=False)


def pages(place: Path) -> None:
    (run,) = (path.parent.relative_to(place) for path in place.glob("one/*/result.json"))
    (failed,) = (path.parent.relative_to(place) for path in place.glob("killed/*/result.json"))
    sweep = min(path.relative_to(place) for path in place.glob("several/sweep-*.json"))
    for page, shown in (("run", run), ("failed", failed), ("sweep", sweep)):
        called(place, f"launch/report.py html {page}.html {shown}")
    called(place, COMPARED)
    nights = sorted(place.glob(NIGHTS))
    if nights:
        called(place, f"launch/report.py html night.html {nights[-1].relative_to(place)}")
        runs = sorted(path.parent for path in place.glob("results/2*/provenance.json") if not of_a_night(path))[
            -MANY:
        ]
        shown = [str(path.relative_to(place)) for path in [nights[-1], *reversed(runs)]]
        called(place, f"launch/report.py html many.html {failed} {' '.join(shown)}")


def of_a_night(provenance: Path) -> bool:
    return json.loads(provenance.read_text())["labels"]["nightly"] is not None


def take(started: "Browser", path: Path, most: int) -> None:
    """The upper part of a page."""
    from PIL import Image

    with page_of(started, path.resolve().as_uri()) as page:
        height = min(most, int(page.evaluate("document.documentElement.scrollHeight")))
        page.set_viewport_size({"width": DESK, "height": height})
        picture = Image.open(io.BytesIO(page.screenshot()))
    target = PICTURES / f"report-{path.stem}.png"
    picture.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE).save(target, optimize=True)
    print(f"docs/pictures/{target.name}: {target.stat().st_size // 1024} kB", flush=True)


if __name__ == "__main__":
    main()
