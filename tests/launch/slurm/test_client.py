"""Queries of Slurm by its commands: with scripted programs of the same names, and with the real ones."""

import os
import re
import shutil
import signal
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from benchmarks.errors import EXIT_FAILED, EXIT_REFUSED, RequestError, RunError
from benchmarks.job_record import SchedulerEnd
from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import Site
from benchmarks.values import Slurm as SlurmSite
from launch.private_cluster import daemons
from launch.slurm import commands
from launch.slurm.client import Slurm, slurm_of
from tests.end_to_end.clusters import ClusterOfTests, until
from tests.launch.private_cluster_fixture import RunningCluster, private_cluster

STORED_RUNS = Path(__file__).parents[1] / "stored_runs"


def shown(state: str, reason: str, code: str) -> str:
    """Return a job as scontrol show job -o prints it, without unread fields."""
    return (
        f"JobId=7 JobName=wrap UserId=root(0) JobState={state} Reason={reason} Dependency=(null) Requeue=1 "
        f"Restarts=0 BatchFlag=1 Reboot=0 ExitCode={code} RunTime=00:00:00 StartTime=10 EndTime=20 Deadline=N/A "
        "NodeList=node1 NumNodes=1"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("given", ["file", "folder", "link"])
def test_a_run_names_no_slurm_conf_of_another_user(given: str, tmp_path: Path) -> None:
    """Slurm's commands load the plugins that it names."""
    conf = tmp_path / "etc/slurm.conf"
    conf.parent.mkdir()
    conf.symlink_to("/etc/hostname") if given == "link" else conf.touch()
    run = shutil.copytree(STORED_RUNS / "jax_on_slurm", tmp_path / "run")
    text = (run / "benchmark.json").read_text()
    (run / "benchmark.json").write_text(
        text.replace("/home/user/.cache/stepmark/clusters/dev/etc/slurm.conf", str(conf))
    )
    slurm_of(RunFolder(run))
    os.chown(conf.parent if given == "folder" else conf, 65534, 65534, follow_symlinks=False)
    with pytest.raises(RequestError, match="another user"):
        slurm_of(RunFolder(run))


# --- running a command: scripted programs of the same names ---------------------------------------------

AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


def site_of(configuration: str | None = None) -> Site:
    slurm = SlurmSite(shared_folders=["/"], hardware=["cpu"], configuration=configuration)
    return Site(name="dev", kind="slurm", title="", runtime="venv", source="a test", date="2026-11-21", slurm=slurm)


Script = Callable[[str, str], Path]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Put a program of this name first on PATH. It runs in the folder of its notes."""
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setattr(commands, "FIRST_PAUSE_SECONDS", 0.01)

    def write(name: str, body: str) -> Path:
        path = place / name
        path.write_text(f'#!/bin/bash\necho "$*" >> {place}/{name}.asked\n{body}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return place / f"{name}.asked"

    return write


def test_a_restarting_controller_is_asked_again_and_the_caller_is_notified(script: Script, tmp_path: Path) -> None:
    asked = script("squeue", f'[ $(wc -l < {tmp_path}/bin/squeue.asked) -ge 3 ] || {{ echo "{AWAY}" >&2; exit 1; }}')
    messages: list[str] = []
    assert Slurm(site_of(), patience_seconds=10, on_wait=messages.append).queue(["7"]) == {}
    assert len(asked.read_text().splitlines()) == 3
    assert len(messages) == 2
    assert "Unable to contact slurm controller" in messages[0]


@pytest.mark.parametrize(
    ("body", "why"), [(f'echo "{AWAY}" >&2; exit 1', AWAY), ("exec sleep 30", "squeue did not end within 0 s")]
)
def test_a_controller_that_gives_no_answer_is_given_up(
    script: Script, monkeypatch: pytest.MonkeyPatch, body: str, why: str
) -> None:
    monkeypatch.setattr(commands, "COMMAND_SECONDS", 0.3)
    script("squeue", body)
    with pytest.raises(RunError, match="does not answer") as caught:
        Slurm(site_of(), patience_seconds=0.2).queue(["7"])
    assert (caught.value.exit_code, caught.value.why) == (EXIT_FAILED, why)
    assert caught.value.next_command == "scontrol ping"


def test_without_slurm_the_refusal_names_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RequestError, match="needs squeue") as caught:
        Slurm(site_of()).queue(["7"])
    assert caught.value.exit_code == EXIT_REFUSED
    assert "slurm-client" in caught.value.next_command
    assert "module load slurm" in caught.value.why


def test_an_unknown_cluster_is_refused_at_once(script: Script) -> None:
    """Slurm itself looks for its slurm.conf for a minute."""
    script("squeue", "sleep 60")
    with pytest.raises(RequestError, match=r"slurm\.conf of site 'dev' does not exist"):
        Slurm(site_of("/nowhere/slurm.conf")).queue(["7"])


def test_one_command_whatever_the_number_of_jobs(script: Script) -> None:
    asked = [script(name, "") for name in ("squeue", "sacct", "scontrol")]
    jobs = [str(number) for number in range(1, 1201)]
    slurm = Slurm(site_of())
    slurm.queue(jobs)
    slurm.ends(jobs)
    assert slurm.queue([]) == slurm.ends([]) == {}
    assert [len(one.read_text().splitlines()) for one in asked] == [1, 1, 1]


def test_the_shells_own_wishes_do_not_change_what_is_printed(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SQUEUE_FORMAT", "SLURM_TIME_FORMAT", "SACCT_FORMAT", "SQUEUE_PARTITION", "SLURM_CLUSTERS"):
        monkeypatch.setenv(name, "other")
    asked = script("squeue", f"env > {script('true', '').parent}/env")
    Slurm(site_of()).queue(["7"])
    seen = (asked.parent / "env").read_text().splitlines()
    assert "SLURM_TIME_FORMAT=%s" in seen
    assert "LC_ALL=C" in seen
    assert not [line for line in seen if line.endswith("=other")]


def test_what_sbatch_gets_is_what_it_was_given(script: Script, tmp_path: Path) -> None:
    """The job inherits it: a word of this shell more would be in the job too."""
    asked = script(
        "sbatch", f"/usr/bin/env > {tmp_path}/env; pwd > {tmp_path}/folder; echo 'sbatch: note' >&2; echo '7;dev'"
    )
    path = tmp_path / "run-1" / "job.sbatch"
    path.parent.mkdir()
    assert Slurm(site_of()).submit(path, {"HF_TOKEN": "x", "PATH": os.environ["PATH"]}) == "7"
    assert asked.read_text() == f"--parsable {path}\n"
    assert (tmp_path / "folder").read_text() == f"{path.parent}\n"
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names - {"_", "PWD", "SHLVL", "OLDPWD", "SLURM_CONF"} == {"HF_TOKEN", "PATH"}


def test_a_job_that_was_taken_though_the_answer_was_lost_is_not_submitted_twice(
    script: Script, tmp_path: Path
) -> None:
    lost = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    asked = script("sbatch", f"echo '{lost}' >&2; exit 1")
    script("squeue", "printf '31\\x1f/shared/run-1\\x1fstepmark:run-1\\n'")
    path = tmp_path / "run-1" / "job.sbatch"
    path.parent.mkdir()
    assert Slurm(site_of()).submit(path, dict(os.environ)) == "31"
    assert len(asked.read_text().splitlines()) == 1


@pytest.mark.parametrize("looks", [1, 2, 4, 99], ids="it appears at look {}".format)
@pytest.mark.parametrize("again", ["echo 32", "echo 'sbatch: error: job submit limit' >&2; exit 1", "{lost}"])
def test_whatever_slurm_answers_after_a_lost_answer_one_job_stays(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int, again: str
) -> None:
    """Every order of a late first job and of the second answer."""
    monkeypatch.setattr("launch.slurm.client.ASK_AGAIN_SECONDS", 0.2)
    lost = "echo 'Socket timed out on send/recv operation' >&2; exit 1"
    place = tmp_path / "bin"
    # Long enough for four looks on a busy machine; only a job that never appears is waited for to the end.
    script("scontrol", f"echo 'MessageTimeout = {1 if looks == 99 else 60} sec'")
    sent = script("sbatch", f"if [ $(wc -l < {place}/sbatch.asked) = 1 ]; then {lost}; fi; {again.format(lost=lost)}")
    first = f"[ $(wc -l < {place}/squeue.asked) -lt {looks} ] || printf '31\\x1f/shared/run-1\\x1f\\n'"
    second = f"[ $(wc -l < {place}/sbatch.asked) -lt 2 ] || printf '32\\x1f/shared/run-1\\x1f\\n'"
    script("squeue", f"{first}; {second if again == 'echo 32' else 'true'}")
    cancelled = script("scancel", "")
    (tmp_path / "run-1").mkdir()
    slurm = Slurm(site_of(), patience_seconds=5)
    found: str | type[Exception]
    try:
        found = slurm.submit(tmp_path / "run-1/job.sbatch", dict(os.environ))
    except (RequestError, RunError) as error:
        found = type(error)
    appeared = looks < 99
    assert found == ("31" if appeared else "32" if again == "echo 32" else RunError)
    assert len(sent.read_text().splitlines()) == 1 or not appeared or looks == 99
    assert not cancelled.exists()


def test_of_two_jobs_of_a_run_the_first_stays(script: Script, tmp_path: Path) -> None:
    lost = "echo 'Socket timed out on send/recv operation' >&2; exit 1"
    script("scontrol", "echo 'MessageTimeout = 1 sec'")
    script("sbatch", lost)
    script("squeue", "printf '31\\x1f/shared/run-1\\x1f\\n32\\x1f/shared/run-1\\x1f\\n'")
    cancelled = script("scancel", "")
    (tmp_path / "run-1").mkdir()
    assert Slurm(site_of()).submit(tmp_path / "run-1/job.sbatch", dict(os.environ)) == "31"
    assert cancelled.read_text() == "32\n"


@pytest.mark.parametrize(
    ("words", "further"),
    [("invalid partition specified", "sinfo -s"), ("unrecognized option '--segment=3'", "--segment=none")],
)
def test_what_sbatch_refuses_is_refused_in_its_words(
    script: Script, tmp_path: Path, words: str, further: str
) -> None:
    script("sbatch", f'echo "sbatch: error: {words}" >&2; exit 1')
    with pytest.raises(RequestError, match="Slurm refused the job") as caught:
        Slurm(site_of()).submit(tmp_path / "job.sbatch", dict(os.environ))
    assert caught.value.why == f"sbatch: error: {words}"
    assert caught.value.next_command.startswith(further)


RUNS = "7\\x1fRUNNING\\x1f0:0\\x1fNone\\x1fnode2\\x1f10\\x1fUnknown\\n"
LOST = "7\\x1fNODE_FAIL\\x1f0:0\\x1fNone\\x1fnode1\\x1f5\\x1f9\\n"
OFF = "echo 'Slurm accounting storage is disabled' >&2; exit 1"
FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
FAILED = f"echo '{shown('FAILED', 'NonZeroExitCode', '3:0')}'"


@pytest.mark.parametrize(
    ("sacct", "scontrol", "states", "source", "note"),
    [
        (f"printf '{RUNS}'", FAILED, ["FAILED"], "scontrol", None),  # the accounting lags behind
        (f"printf '{RUNS}'", FORGOTTEN, ["RUNNING"], "sacct", "the end is unknown"),
        (f"printf '{LOST}{RUNS}'", FAILED, ["NODE_FAIL", "FAILED"], "scontrol", None),  # it was requeued
        (OFF, FAILED, ["FAILED"], "scontrol", "from scontrol (accounting is off); earlier attempts are unknown"),
        (OFF, FORGOTTEN, ["UNKNOWN"], "nobody", "accounting is off, and the controller no longer knows the job"),
    ],
)
def test_what_the_accounting_and_the_controller_know_together(
    script: Script, sacct: str, scontrol: str, states: list[str], source: str, note: str | None
) -> None:
    script("sacct", sacct)
    script("scontrol", scontrol)
    script("sinfo", "")
    ends = Slurm(site_of()).ends(["7"])["7"]
    assert ([end.state for end in ends], ends[-1].source) == (states, source)
    assert (ends[-1].note or "").startswith(note or "") and bool(ends[-1].note) == bool(note)


# --- the real one ---------------------------------------------------------------------------------------


def site_at(cluster: RunningCluster) -> Site:
    site = site_of(str(cluster.cluster.files.slurm_conf))
    return msgspec.structs.replace(site, name=cluster.name)


IMPATIENT_SECONDS = 3  # the MessageTimeout of a client


class Jobs:
    """Jobs on a real cluster, submitted as a run's are."""

    def __init__(self, cluster: RunningCluster, place: Path) -> None:
        self.cluster, self.place = cluster, place
        self.slurm = Slurm(site_at(cluster), patience_seconds=30)

    def submit(self, body: str, *options: str, run_id: str = "", slurm: Slurm | None = None) -> str:
        folder = self.place / (run_id or f"run-{len(list(self.place.iterdir()))}")
        folder.mkdir()
        lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in options), body]
        (folder / "job.sbatch").write_text("\n".join(lines) + "\n")
        return (slurm or self.slurm).submit(folder / "job.sbatch", dict(os.environ))

    def ended(self, job_id: str) -> SchedulerEnd:
        until(lambda: job_id not in self.slurm.queue([job_id]), "the job has left the queue")
        until(lambda: self.slurm.ends([job_id])[job_id][-1].ended is not None, "its end is known")
        return self.slurm.ends([job_id])[job_id][-1]


@pytest.fixture(scope="module")
def jobs(cluster: ClusterOfTests, tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    return Jobs(cluster.running, tmp_path_factory.mktemp("runs"))


@pytest.mark.slow
def test_a_run_is_found_by_its_comment_after_it_has_left_the_queue(jobs: Jobs) -> None:
    job = jobs.submit("exit 0", "--comment='stepmark:by-comment a|b'", "--job-name='a|b'", run_id="another-name")
    jobs.ended(job)
    assert jobs.slurm.find("by-comment") == job
    assert jobs.slurm.find("another-name") == job
    assert jobs.slurm.find("by-comm") is None


@pytest.mark.slow
def test_what_the_real_sbatch_refuses(jobs: Jobs) -> None:
    for option, words in (
        ("--partition=nope", "partition"),
        ("--gres=gpu:99", "node configuration is not available"),
        ("--time=soon", "--time"),
        ("--constraint=nope", "feature"),
        ("--nope", "unrecognized option"),
    ):
        with pytest.raises(RequestError, match="Slurm refused the job") as caught:
            jobs.submit("exit 0", option)
        assert words in caught.value.why


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.3, 1.8])  # sbatch gives up, and so does the first question after it
def test_a_controller_that_stalls_gets_the_job_once(jobs: Jobs, tmp_path: Path, share: float) -> None:
    configuration = tmp_path / "slurm.conf"
    text = jobs.cluster.cluster.files.slurm_conf.read_text()
    configuration.write_text(re.sub("^MessageTimeout=.*", f"MessageTimeout={IMPATIENT_SECONDS}", text, flags=re.M))
    slurm = Slurm(site_of(str(configuration)), patience_seconds=30)
    found = daemons.running(jobs.cluster.cluster)
    controller = [process.pid for process in found if process.owner == daemons.CONTROLLER]
    assert controller

    def wake() -> None:
        for pid in controller:
            os.kill(pid, signal.SIGCONT)

    for pid in controller:
        os.kill(pid, signal.SIGSTOP)
    waking = threading.Timer(share * IMPATIENT_SECONDS, wake)
    waking.start()
    try:
        job = jobs.submit("sleep 60", run_id=f"stalled-{share}", slurm=slurm)
    finally:
        waking.cancel()
        wake()
    queued = jobs.cluster.slurm("squeue", "-h", "-a", "-o", "%i %Z").stdout.splitlines()
    assert [line.split()[0] for line in queued if f"stalled-{share}" in line] == [job]
    jobs.slurm.cancel(job)


@pytest.mark.slow
def test_without_accounting_the_controller_is_asked(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "runs").mkdir()
    with private_cluster(tmp_path / "home", nodes=1, accounting=False, name="bare") as cluster:
        jobs = Jobs(cluster, tmp_path / "runs")
        good, bad = jobs.submit("exit 0"), jobs.submit("exit 3", run_id="bad")
        assert jobs.ended(good).state == "COMPLETED"
        ended = jobs.ended(bad)
        assert (ended.state, ended.exit_code, ended.source) == ("FAILED", "3:0", "scontrol")
        assert "accounting is off" in (ended.note or "")
        assert jobs.slurm.find("bad") == bad
        assert jobs.slurm.find("nothing-of-the-kind") is None
        (end,) = jobs.slurm.ends(["987654"])["987654"]
        assert end.note == "accounting is off, and the controller no longer knows the job"
