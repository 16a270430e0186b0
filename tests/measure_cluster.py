"""What a large private cluster costs on this machine, and that Stepmark goes through it. Measures, asserts nothing.

    python tests/measure_cluster.py --nodes=256

Brings the cluster up, runs the preflight on all nodes, then a run with one task a node (a worker that naps instead
of training: so many MaxText processes do not fit into one machine), collects it, and brings the cluster down. Memory
is the proportional set size (PSS): what is shared is counted once.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.end_to_end.clusters import ClusterOfTests, cluster_of_tests  # noqa: E402

EVERY_SECONDS = 1.0


class Memory:
    """The most memory that all processes of the cluster had at once."""

    def __init__(self, marker: str) -> None:
        self._marker = marker.encode()
        self.most_bytes = 0
        self.most_processes = 0

    def look(self) -> None:
        found = [pss for place in Path("/proc").glob("[0-9]*") if (pss := self._pss_of(place)) is not None]
        self.most_bytes = max(self.most_bytes, sum(found))
        self.most_processes = max(self.most_processes, len(found))

    def _pss_of(self, place: Path) -> int | None:
        """None: it is none of the cluster's."""
        try:
            words = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
            if self._marker not in words:
                return None
            lines = (place / "smaps_rollup").read_text().splitlines()
        except OSError:
            return None  # it ended while we looked
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


@contextmanager
def watched(title: str, memory: Memory) -> Iterator[None]:
    """Prints how long the block took, and the most memory until then."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(EVERY_SECONDS):
            memory.look()

    watcher = threading.Thread(target=look, daemon=True)
    began = time.monotonic()
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        print(
            f"{title:<44} {time.monotonic() - began:7.1f} s   {memory.most_bytes / 1e6:8,.0f} MB at most, "
            f"{memory.most_processes} processes",
            flush=True,
        )


def measure(nodes: int, steps: int) -> int:
    with tempfile.TemporaryDirectory(prefix="stepmark-") as place:
        memory = Memory(place)
        began = time.monotonic()
        with cluster_of_tests(Path(place), nodes) as cluster:
            memory.look()
            print(f"{'up':<44} {time.monotonic() - began:7.1f} s   {memory.most_bytes / 1e6:8,.0f} MB", flush=True)
            with watched(f"preflight of {nodes} nodes", memory):
                preflight = cluster.call("doctor.py", "nodes", "--site=dev", "--output_dir=preflights")
            print(preflight.stdout, preflight.stderr if preflight.returncode else "", sep="")
            code = _run(cluster, nodes, steps, memory) or preflight.returncode
            began = time.monotonic()
        print(f"{'down':<44} {time.monotonic() - began:7.1f} s")
    return code


def _run(cluster: ClusterOfTests, nodes: int, steps: int, memory: Memory) -> int:
    output_dir = cluster.folder / "runs"
    layout = (f"--nodes={nodes}", f"--gpus={nodes}", f"--set=replicas={nodes}", f"--steps={steps}")
    with watched(f"submitted: a run of {nodes} nodes", memory):
        left = cluster.toy(output_dir, *layout, "--set=nap_seconds=0.1", "--nowait")
    if left.code:
        print(left.err)
        return left.code
    with watched("followed to its end, and collected", memory):
        followed = cluster.status(output_dir, "--follow", left.folder.name)
    print(followed.stdout, followed.stderr if followed.returncode else "", sep="")
    ranks = {json.loads(line)["rank"] for line in (left.folder / "steps.jsonl").read_text().splitlines()}
    print(f"{len(ranks)} ranks reported steps")
    return followed.returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    sys.exit(measure(options.nodes, options.steps))
