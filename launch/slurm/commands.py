"""Run one command of Slurm with its environment and time limit, and retry it while the controller does not answer.

A controller that restarts or is busy does not answer for a while, which must not end a run.
"""

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.errors import RequestError, RunError
from benchmarks.values import Site
from launch.slurm.parsing import SEPARATOR

PATIENCE_SECONDS = 60.0
COMMAND_SECONDS = 30.0
END_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0
WORDS_SHOWN = 600

PACKAGES = "sudo apt-get install slurm-client munge"
# Variables of the caller's shell that would change the output or the options of the commands.
STEERING = ("SLURM_", "SBATCH_", "SACCT_", "SQUEUE_", "SINFO_", "SCONTROL_", "SCANCEL_", "SALLOC_", "SRUN_")
NO_ANSWER = re.compile(
    r"unable to contact slurm controller|socket timed out|connection refused|connection reset|connection timed out|"
    r"zero bytes were transmitted|communication connection failure|transport endpoint|backup controller|"
    r"problem talking to the database|slurmdbd.*(down|not responding)|temporarily unable|did not end within",
    re.IGNORECASE,
)
UNKNOWN_JOB = re.compile(r"invalid job id|already completing|job/step already", re.IGNORECASE)


class SlurmError(Exception):
    """A command of Slurm failed; `words` is the text of its stderr."""

    def __init__(self, command: Sequence[str], words: str) -> None:
        super().__init__(words)
        self.command = command
        self.words = words

    @property
    def no_answer(self) -> bool:
        return bool(NO_ANSWER.search(self.words))


class Commands:
    """The commands of one site's Slurm."""

    def __init__(self, site: Site, patience_seconds: float, on_wait: Callable[[str], None]) -> None:
        self._site = site
        self._configuration = site.slurm.configuration if site.slurm else None
        self._patience = patience_seconds
        self._on_wait = on_wait

    def ask_about_jobs(self, command: list[str]) -> str:
        """Return the output of a command about jobs; empty if Slurm does not know the jobs."""
        try:
            return self.ask(command)
        except RunError as error:
            if UNKNOWN_JOB.search(error.why):
                return ""
            raise

    def ask(self, command: list[str], patience_seconds: float | None = None) -> str:
        """Return the output of a command; retry while the controller does not answer."""
        try:
            return self.retry(lambda: self.run(command, self.asking_environment()), None, patience_seconds)
        except SlurmError as error:
            # Omit the output format, because a user cannot type its separators.
            typed = " ".join(word for word in command if SEPARATOR not in word and word != "-o")
            raise RunError(
                f"{command[0]} failed",
                where=f"site '{self._site.name}'",
                why=error.words,
                next_command=by_hand(self._site, typed),
            ) from None

    def retry(
        self,
        ask: Callable[[], str],
        after_all: Callable[[SlurmError], str | None] | None = None,
        patience_seconds: float | None = None,
    ) -> str:
        """Return the result of `ask`; retry it with growing pauses while the controller does not answer.

        Before each retry, call `after_all`. If it returns a result, the failed call had reached the controller, and
        this function returns that result.
        """
        before, pause = time.monotonic(), FIRST_PAUSE_SECONDS
        patience = self._patience if patience_seconds is None else min(self._patience, patience_seconds)
        while True:
            try:
                return ask()
            except SlurmError as error:
                if not error.no_answer:
                    raise
                waited = time.monotonic() - before
                if waited + pause > patience:
                    raise RunError(
                        f"the Slurm of site '{self._site.name}' does not answer",
                        where=f"{error.command[0]}, for {waited:.0f} s",
                        why=error.words,
                        next_command=by_hand(self._site, "scontrol ping"),
                    ) from None
                last_words = error.words.splitlines()[-1]
                self._on_wait(f"Slurm does not answer ({last_words}): trying again in {pause:g} s")
                time.sleep(pause)
                heard = after_all(error) if after_all else None
                if heard is not None:
                    return heard
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def run(
        self,
        command: list[str],
        environment: Mapping[str, str],
        folder: Path | None = None,
        seconds: float | None = None,
    ) -> str:
        """Run the command once and return its output."""
        limit = COMMAND_SECONDS if seconds is None else seconds
        process = subprocess.Popen(
            [self._program(command[0]), *command[1:]],
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            raise SlurmError(command, f"{command[0]} did not end within {limit:.0f} s") from None
        finally:
            _end(process)
        text, words = out.decode(errors="replace"), err.decode(errors="replace").strip()
        if process.returncode != 0 or (NO_ANSWER.search(words) and not text):
            raise SlurmError(
                command, words[-WORDS_SHOWN:] or f"{command[0]} ended with exit code {process.returncode}"
            )
        return text

    def _program(self, name: str) -> str:
        found = shutil.which(name)
        if found is None:
            raise RequestError(
                f"site '{self._site.name}' needs {name}, which this machine does not have",
                where="PATH",
                why="on a cluster's login node, try `module load slurm`; --dry_run shows the job and needs no Slurm",
                next_command=PACKAGES,
            )
        if self._configuration and not Path(self._configuration).is_file():  # Slurm's commands would try for a minute
            raise RequestError(
                f"the slurm.conf of site '{self._site.name}' does not exist",
                where=self._configuration,
                why="slurm.configuration in the site's file names it; a private cluster has it only while it runs",
                next_command=f"python launch/cluster.py up --name={self._site.name}",
            )
        return found

    def configuration(self) -> dict[str, str]:
        path = self._configuration or os.environ.get("SLURM_CONF")
        return {"SLURM_CONF": path} if path else {}

    def asking_environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}
        return kept | self.configuration() | {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}


def by_hand(site: Site, commands: str) -> str:
    """Return Slurm commands, separated by "; ", each with the site's SLURM_CONF, so that any shell can run them."""
    path = site.slurm.configuration if site.slurm else None
    return "; ".join(f"SLURM_CONF={shlex.quote(path)} {one}" if path else one for one in commands.split("; "))


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Terminate a process, and kill it only if it does not end: a killed srun leaves its job behind."""
    with process:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
