"""The dashboard over real run folders: what a real TensorBoard serves and shows of it."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.values import Parallelism
from jax_backend import BACKEND
from launch.running.execute import store_result
from tests import forked
from tests.benchmarks.dashboard.made import judgement, report
from tests.browser import browser, needs_chromium, page_of
from tests.launch.dashboards.made_runs import MEASURED, begun, ended

REPOSITORY = Path(__file__).resolve().parents[2]
SERIES = "series/llama2_tiny bf16 jax-maxtext 1xcpu batch2 one_device"
SERIES_OF_TWO = "series/llama2_tiny bf16 jax-maxtext 2xcpu batch4 data_2"
NIGHTS = {f"2026-11-0{n}": 0.5 + 0.1 * (n > 3) for n in range(1, 7)}


def run_name(number: int, devices: int = 1) -> str:
    return f"202611{number:02d}T000000Z-jax-llama2_tiny-{devices}xcpu-{number:04x}"


def folder_name(number: int, devices: int = 1) -> str:
    return f"2026-11-{number:02d} 00.00 llama2_tiny bf16 jax {devices}xcpu {number:04x}"


def on(devices: int) -> dict[str, Any]:
    return {"gpus": devices, "global_batch_size": 2 * devices, "parallelism": Parallelism(data=devices)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two scales, an own peak, a run that failed, one that still trains, a profile, a slow one, and six nights."""
    root = tmp_path_factory.mktemp("results")
    for number in (1, 2, 3):
        ended(root, run_name(number), 0.5 + number / 100, measured_peaks=MEASURED)
        ended(root, run_name(number, 2), 0.6, **on(2))
    ended(root, run_name(4), 0.5, inject_slowdown=0.5)
    profiled = ended(root, run_name(5), 0.5, profile="xplane")
    session = root / run_name(5) / "attempt-1/perf/tensorboard/plugins/profile/2026_11_05"
    session.mkdir(parents=True)
    (session / "here.xplane.pb").write_bytes(b"a trace")
    store_result(profiled, BACKEND)
    begun(root, run_name(6))
    (root / "nights/smoke").mkdir(parents=True)
    text = msgspec.json.encode(report("2026-11-06", {"tiny": [judgement(NIGHTS)]}))
    (root / "nights/smoke/2026-11-06.json").write_bytes(text)
    return root


@pytest.fixture
def results(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "results"))


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the index of the runs outside of the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPMARK_HOME", str(tmp_path_factory.mktemp("home")))
        yield


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(REPOSITORY / "launch/dashboard.py"), *arguments]


def dashboard(*arguments: str, code: int = 0, **variables: str) -> str:
    done = forked.run(REPOSITORY / "launch/dashboard.py", *arguments, env={**os.environ, **variables})
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


def files(place: Path) -> dict[str, int]:
    return {
        str(path.relative_to(place)): path.lstat().st_mtime_ns
        for path in place.rglob("*")
        if (path.is_file() or path.is_symlink()) and ".state" not in path.parts
    }


# --- what is written ------------------------------------------------------------------------------


def test_it_says_what_it_holds_and_a_second_time_writes_nothing(results: Path) -> None:
    output = dashboard(f"--output_dir={results}")
    assert "runs      9" in output
    assert "charts    6 runs in 2 series; 6 nights" in output
    assert "excluded  1 profiled, 1 running, 1 slowed on purpose" in output
    assert "table     9 runs\n" in output
    (link,) = (results / "dashboard").glob("**/*.xplane.pb")  # where the profile plugin looks
    assert link.relative_to(results / "dashboard/runs" / folder_name(5)) == Path(
        "plugins/profile/2026_11_05/here.xplane.pb"
    )
    assert link.read_bytes() == b"a trace"
    before = files(results / "dashboard")
    assert "written   0 lines" in dashboard(f"--output_dir={results}")
    assert files(results / "dashboard") == before


def test_a_new_run_is_added_and_a_removed_one_disappears(results: Path) -> None:
    dashboard(f"--output_dir={results}")
    ended(results, run_name(9), 0.5, measured_peaks=MEASURED)
    shutil.rmtree(results / run_name(2, 2))
    output = dashboard(f"--output_dir={results}", "--newest=7")
    assert "charts    6 runs in 2 series" in output
    assert "table     7 runs, the newest (--newest=7)" in output
    assert not (results / "dashboard/runs" / folder_name(2, 2)).exists()
    assert [path.name for path in (results / "dashboard/newest").iterdir()] == [folder_name(9)]


def test_what_cannot_be_read_is_named_and_a_pipe_is_not_waited_for(results: Path) -> None:
    os.mkfifo(results / "nights/smoke/2026-11-07.json")
    (results / "nights/smoke/2026-11-08.json").write_text("{ cut")
    output = dashboard(f"--output_dir={results}")
    assert "instead of a file" in output
    assert "2026-11-08.json" in output
    assert "6 nights" in output


# --- what is served -------------------------------------------------------------------------------


@contextlib.contextmanager
def served(results: Path, *arguments: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    server = subprocess.Popen(
        command(f"--output_dir={results}", "--serve", "--port=0", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output = []
        for line in server.stdout:
            output.append(line)
            if line.startswith("Ctrl-C"):
                break
        found = re.search(r"http://localhost:\d+", "".join(output))
        assert found, "".join(output)
        yield found[0], server
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGINT)
            server.wait(120)
        if server.stdout is not None:
            server.stdout.close()


def ask(address: str, post: dict[str, Any] | None = None, /, **query: str) -> Any:
    url = f"{address}?{urllib.parse.urlencode(query)}" if query else address
    data = json.dumps(post).encode() if post is not None else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def wait_for(address: str, run: str, seconds: float = 240) -> set[str]:
    """TensorBoard reads while it serves."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        runs = set(ask(f"{address}/data/runs"))
        if run in runs:
            return runs
        time.sleep(0.3)
    raise AssertionError(f"{run} is not served")


@pytest.fixture(scope="module")
def address(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = shutil.copytree(made, tmp_path_factory.mktemp("served") / "results")
    with served(Path(root), "--refresh_seconds=0") as (found, _):
        wait_for(found, SERIES_OF_TWO)
        yield found


@pytest.mark.slow
def test_the_step_times_of_a_series_and_its_nights_are_served_point_by_point(address: str) -> None:
    scalars = f"{address}/data/plugin/scalars/scalars"
    found = ask(scalars, run=SERIES, tag="1 seconds per step/llama2_tiny bf16")
    assert [(step, round(value, 3)) for _, step, value in found] == [(n - 1, 0.5 + n / 100) for n in (1, 2, 3)]
    assert [when for when, _, _ in found] == [1793491200.0 + 86400 * n for n in range(3)]
    nights = ask(scalars, run="nights/smoke", tag="2 nights of smoke: seconds_per_step/tiny")
    assert [round(value, 3) for _, _, value in nights] == list(NIGHTS.values())


@pytest.mark.slow
def test_it_serves_what_comes_meanwhile_and_ends_cleanly(results: Path) -> None:
    with served(results, "--refresh_seconds=0.5") as (address, server):
        wait_for(address, SERIES)
        ended(results, run_name(8), 0.5, **on(4))
        ended(results, run_name(9), 0.5, measured_peaks=MEASURED)
        wait_for(address, "series/llama2_tiny bf16 jax-maxtext 4xcpu batch8 data_4")
        wait_for(address, f"newest/{folder_name(9)}")
        tag = "3 tokens per second of one device/llama2_tiny bf16"
        end = time.monotonic() + 240
        steps: list[int] = []
        while steps != [0, 1, 2, 3] and time.monotonic() < end:  # its file was replaced: no point twice
            steps = [step for _, step, _ in ask(f"{address}/data/plugin/scalars/scalars", run=SERIES, tag=tag)]
            time.sleep(0.3)
        assert steps == [0, 1, 2, 3]
        server.send_signal(signal.SIGINT)
        assert server.wait(120) == 0
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(address, timeout=60)


# --- what is seen ---------------------------------------------------------------------------------


@needs_chromium
@pytest.mark.slow
def test_a_person_sees_the_charts_and_the_table(address: str) -> None:
    with browser() as started:
        with page_of(started, f"{address}/") as page:
            cards = page.locator("card-view")
            cards.first.get_by_text("/llama2_tiny bf16", exact=True).wait_for(timeout=120_000)
            assert page.locator("metrics-card-group-toolbar .group-title").first.inner_text() == "1 seconds per step"
            assert "smoothing=0&" in page.url
            rows = page.locator("runs-data-table tb-data-table-content-row")
            rows.first.wait_for(timeout=120_000)
            names = rows.all_inner_texts()
            assert names[0].strip().startswith("newest/2026-11-06 00.00"), names
        with page_of(started, f"{address}/#hparams") as page:
            table = page.locator("tf-hparams-table-view")
            deadline = time.monotonic() + 120
            # The table never reloads: a page that came before the server had read every run lacks some.
            while time.monotonic() < deadline and not table.get_by_text("2xcpu bf16 jax").count():
                page.wait_for_timeout(5_000)
                page.reload()
                table.get_by_text("llama2_tiny").first.wait_for(state="visible", timeout=120_000)
            for word in ("model", "s/step", "tokens/s/GPU", "MFU %", "llama2_tiny", "2xcpu bf16 jax", "11-04 0004"):
                table.get_by_text(word).first.wait_for(state="visible", timeout=120_000)
