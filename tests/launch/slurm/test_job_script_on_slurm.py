"""Job scripts on a real Slurm of four virtual nodes: each way a job ends, and what it leaves behind."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.job_record import JobEvent
from benchmarks.request.resolve import Request, resolve
from benchmarks.runs.worker_events import read_phase
from benchmarks.values import Benchmark, JobOptions, Phase, Plan, Slurm
from launch.slurm.job_script import JobPlace, render
from tests.end_to_end.clusters import ClusterOfTests, until
from tests.toy_backend import toy_backend as toy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="Slurm is not installed"),
]
REPOSITORY = Path(__file__).resolve().parents[3]
LIMIT_SECONDS = 120
SAMPLER = """
import os, signal, sys, time
out = [word for word in sys.argv if word.startswith("--out=")][0].removeprefix("--out=")
def leave(*_):
    print("end", file=stream, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
stream = open(f"{out}/node-{os.environ['SLURMD_NODENAME']}.jsonl", "w")
print("sample", file=stream, flush=True)
time.sleep(300)
"""


class ClusterForJobs:
    """A cluster, a checkout whose sampler is a stand-in, and jobs of the toy backend."""

    def __init__(self, cluster: ClusterOfTests, folder: Path) -> None:
        self.running = cluster.running
        self.folder = folder
        self.checkout = folder / "check out"
        (self.checkout / "benchmarks/inside").mkdir(parents=True)
        (self.checkout / "launch").symlink_to(REPOSITORY / "launch")
        (self.checkout / "benchmarks/inside/worker_kit.py").symlink_to(REPOSITORY / "benchmarks/inside/worker_kit.py")
        self.sampler(SAMPLER)
        self.configs = Configs(Path(cluster.variables["STEPMARK_CONFIGS"]))

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], **self.running.environment, "LC_ALL": "C"}

    def call(self, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        environment = self.environment | variables
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
        )

    def sampler(self, text: str) -> None:
        (self.checkout / "benchmarks/inside/node_sampler.py").write_text(text)

    def benchmark(self, nodes: int = 3, **knobs: str) -> Benchmark:
        settings = {"replicas": str(nodes), **knobs}
        request = Request(
            backend="toy", model="llama2_tiny", gpus=nodes, nodes=nodes, steps=5, settings=settings, window="last"
        )
        benchmark = resolve(request, self.configs, toy.BACKEND)
        slurm = Slurm(shared_folders=["/"], hardware=["cpu"])
        site = msgspec.structs.replace(benchmark.site, name="jobs", kind="slurm", slurm=slurm)
        return msgspec.structs.replace(benchmark, site=site)


class Job:
    """One run folder with its job, submitted or not."""

    def __init__(self, cluster: ClusterForJobs, name: str = "run") -> None:
        self.cluster = cluster
        self.run = Path(tempfile.mkdtemp(dir=cluster.folder)) / name
        self.run.mkdir()
        self.number = ""

    def write(
        self, benchmark: Benchmark, plan: Plan | None = None, hang: float | None = None, **options: Any
    ) -> "Job":
        place = JobPlace(
            repository=self.cluster.checkout,
            run=self.run,
            run_id="a-run",
            python=sys.executable,
            sampler_python=sys.executable,
        )
        own = JobOptions(**{"time": "5", "singleton": False, "memory": None, "exclusive": False, **options})
        text = render(benchmark, plan or toy.BACKEND.plan(benchmark), place, own, hang)
        (self.run / "job.sbatch").write_text(text)
        return self

    def submit(self, **variables: str) -> "Job":
        done = self.cluster.call("sbatch", "--parsable", str(self.run / "job.sbatch"), **variables)
        assert done.returncode == 0, done.stderr
        self.number = done.stdout.strip()
        return self

    def end(self) -> str:
        """STATE EXIT_CODE, once the job has left the queue."""
        until(lambda: self.shown()["JobState"] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"), "it has ended")
        shown = self.shown()
        return f"{shown['JobState']} {shown['ExitCode']}"

    def shown(self) -> dict[str, str]:
        text = self.cluster.call("scontrol", "show", "job", "-o", self.number).stdout
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def output(self) -> str:
        return "\n".join(path.read_text() for path in self.run.glob("slurm-*.out"))

    def events(self) -> list[JobEvent]:
        lines = (self.run / "attempt-1/job.jsonl").read_bytes().splitlines()
        return [msgspec.json.decode(line, type=JobEvent) for line in lines]

    def ended(self) -> list[dict[str, Any]]:
        paths = sorted((self.run / "attempt-1/perf").glob("exits-rank*.jsonl"))
        return [json.loads(path.read_text()) for path in paths]

    def log(self, rank: int, phase: str = "perf") -> str:
        return (self.run / f"attempt-1/{phase}/rank-{rank}.log").read_text()


def bash_phase(name: str, script: str, nodes: int = 1, tasks: int = 1, **environment: str) -> Phase:
    return Phase(
        name=name,
        command=["bash", "-c", script, "bash", "{phase_dir}"],
        environment=environment,
        nodes=nodes,
        tasks_per_node=tasks,
        devices_per_task=1,
        writes_steps=name == "perf",
    )


def plan(*phases: Phase) -> Plan:
    return Plan(backend="toy", environment_name="toy", phases=list(phases))


@pytest.fixture(scope="module")
def cluster(cluster: ClusterOfTests, tmp_path_factory: pytest.TempPathFactory) -> ClusterForJobs:
    return ClusterForJobs(cluster, tmp_path_factory.mktemp("jobs"))


@pytest.fixture
def job(cluster: ClusterForJobs) -> Job:
    cluster.sampler(SAMPLER)
    return Job(cluster)


# --- a job that goes well -----------------------------------------------------------------------


def test_a_job_that_goes_well(cluster: ClusterForJobs) -> None:
    cluster.sampler(SAMPLER)
    job = Job(cluster, 'a run\'s "own" $HOME `x` folder ü')
    job.write(cluster.benchmark(), exclusive=True, memory="0").submit()
    assert job.end() == "COMPLETED 0:0", job.output()
    steps = read_phase(job.run / "attempt-1/perf", 1).steps
    assert sorted((step.rank, step.step) for step in steps) == [
        (rank, step) for rank in range(3) for step in range(5)
    ]
    start, phase_start, phase_end, end = job.events()
    assert (start.event, start.job_id, start.restarts) == ("start", job.number, 0)
    assert start.nodes == job.shown()["NodeList"]
    assert (phase_start.event, phase_start.phase, phase_end.exit_code, end.exit_code) == ("phase_start", "perf", 0, 0)
    assert phase_start.coordinator
    assert 0 < phase_end.time - phase_start.time < 60
    assert [(found["rank"], found["exit_code"]) for found in job.ended()] == [(0, 0), (1, 0), (2, 0)]
    assert len({found["host"] for found in job.ended()}) == 3
    assert end.time - phase_end.time < 20, "the samplers hold the job up"
    sampled = sorted((job.run / "attempt-1/telemetry").glob("node-*.jsonl"))
    assert [path.read_text() for path in sampled] == ["sample\nend\n"] * 3
    assert job.output() == ""


@pytest.mark.parametrize(
    "text", ["import sys; sys.exit(5)", "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(300)"]
)
def test_samplers_that_fail_cost_a_run_nothing(cluster: ClusterForJobs, job: Job, text: str) -> None:
    cluster.sampler(text)
    job.write(cluster.benchmark()).submit()
    assert job.end() == "COMPLETED 0:0"
    assert "stepmark: telemetry: srun ended with" in job.output()


def test_the_tasks_of_each_phase_in_order(cluster: ClusterForJobs, job: Job) -> None:
    tell = 'echo "$WHICH $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $SLURMD_NODENAME $MASTER_PORT $1"'
    phases = plan(
        bash_phase("profile", tell, 3, 2, WHICH='it\'s "first" $HOME'),
        bash_phase("convert", tell + '; ls "$1/../profile" | grep -c log'),
        bash_phase("perf", tell, 2, 1),
    )
    job.write(cluster.benchmark(), phases).submit(WHICH="inherited", XLA_FLAGS="--x", JAX_PLATFORMS="y")
    assert job.end() == "COMPLETED 0:0", job.output()
    assert [event.event for event in job.events()] == ["start", *["phase_start", "phase_end"] * 3, "end"]
    logged = [job.log(rank, "profile").split() for rank in range(6)]
    assert [words[:3] for words in logged] == [["it's", '"first"', "$HOME"]] * 6
    assert [words[3:8] for words in logged] == [
        [str(rank), "6", str(rank % 2), "2", str(rank // 2)] for rank in range(6)
    ]
    assert len({words[8] for words in logged}) == 3
    assert job.log(0, "convert").split()[-1] == "6"
    assert job.log(0, "convert").startswith("inherited 0 1 ")
    ports = {event.coordinator for event in job.events() if event.event == "phase_start"}
    assert len(ports) == 3
    assert not (job.run / "attempt-1/perf/rank-2.log").exists()


# --- what sbatch makes of the options -----------------------------------------------------------


def test_slurm_reads_the_options_as_they_were_meant(cluster: ClusterForJobs, job: Job) -> None:
    benchmark = cluster.benchmark(2)
    hardware = Configs().hardware("h100")
    benchmark = msgspec.structs.replace(benchmark, hardware=hardware, gpus=16)
    job.write(
        benchmark,
        plan(bash_phase("perf", "true")),
        exclusive=True,
        memory="0",
        singleton=True,
        comment='it\'s a "new" \\ #1 $HOME',
        exclude="node4",
        nice=5,
        arguments=["--begin=now+1hour", "--mail-user=me@example.com"],
    ).submit()
    shown = cluster.call("scontrol", "show", "job", "-o", job.number).stdout
    assert 'Comment=stepmark:a-run it\'s a "new" \\ #1 $HOME' in shown
    assert "gres/gpu=16" in shown
    for words in ("NumNodes=2", "ExcNodeList=node4", "Nice=5", "JobName=stepmark", "TimeLimit=00:05:00", "Requeue=0"):
        assert words in shown
    cluster.call("scancel", job.number)
