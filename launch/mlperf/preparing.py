"""Make the data and the model of an MLPerf benchmark on a site, and check the size of every file.

One job runs the submission's own scripts in the submission's container.
"""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.assets import Needs
from benchmarks.errors import EXIT_FAILED, RequestError
from benchmarks.mlperf.submission import PrepareStep, Submission
from benchmarks.request import images
from benchmarks.values import JobOptions, Site
from launch.assets.needed import look_for, report
from launch.slurm import helper_job
from launch.slurm.refusals import refuse_unseen
from launch.slurm.waiting import Limits, run_parts

QUIET_SECONDS = 7200.0  # for steps that write nothing for a long time; a download always writes
QUEUE_SECONDS = 3600.0
SCRIPT = "prepare.sbatch"
TEMPLATE = Path(__file__).with_name("prepare_mlperf.sbatch.j2")


@dataclass(frozen=True)
class Preparation:
    """The request to make the assets of a submission at a site."""

    site: Site
    options: JobOptions
    minutes: int | None  # the time limit of the job, if the user passes one
    submission: Submission
    image: str
    needs: Needs
    out: Path
    force: bool  # recreate complete assets


def preview(work: Preparation) -> str:
    """Return the script of the job, or a message that no file is missing."""
    steps = _steps(work)
    return render(work, steps, _folder(work)) if steps else f"no job is needed: {work.out} has all files"


def prepare(work: Preparation) -> int:
    """Submit the job, wait for its end, print the state of the assets, and return the exit code."""
    _refuse(work)
    steps = _steps(work)
    failed = _run(work, steps) if steps else ""
    print(failed, end="\n" if failed else "")
    code = report(work.needs, work.submission.name, work.out)
    return EXIT_FAILED if failed else code


def _steps(work: Preparation) -> list[PrepareStep]:
    """Return the steps whose asset is incomplete, or with `force` all steps."""
    found = {asset.name: look_for(asset, work.out) for asset in work.needs.assets}
    return [step for step in work.submission.steps if work.force or found[step.asset].state != "present"]


def _image(work: Preparation) -> Path:
    site = work.site
    if site.container is None:
        raise RequestError(
            f"the submission's scripts need a container, which site '{site.name}' does not have",
            where=f"--site={site.name}",
            why="choose a site with `runtime: container`",
        )
    return images.file_of(work.image, site)


def _refuse(work: Preparation) -> None:
    site, image = work.site, _image(work)
    if not image.is_file():
        raise RequestError(
            "the container image does not exist",
            where=str(image),
            why=f"the image has the scripts that make the data of {work.submission.name}",
            next_command=f"python launch/setup.py --site={site.name} --model={work.submission.name}",
        )
    refuse_unseen(site, "the folder", work.out, "--out=")


# --- the job ----------------------------------------------------------------------------------------


def _folder(work: Preparation) -> Path:
    return helper_job.new_folder(work.out, "preparing")


def render(work: Preparation, steps: list[PrepareStep], folder: Path) -> str:
    minutes = work.minutes or sum(step.minutes for step in steps)
    return helper_job.render(
        TEMPLATE,
        folder,
        title=work.submission.title,
        site=work.site.name,
        model=work.submission.name,
        directives=helper_job.directives(work.options, helper_job.SETUP_NAME, 1, minutes, folder),
        out=helper_job.shell_word(str(work.out)),
        image=helper_job.shell_word(str(_image(work))),
        inside=helper_job.shell_word(work.submission.inside),
        workdir=helper_job.shell_word(work.submission.workdir),
        steps=[
            {
                "name": step.name,
                "makes": step.makes,
                "command": " ".join(helper_job.shell_word(word) for word in step.command),
            }
            for step in steps
        ],
    )


def _run(work: Preparation, steps: list[PrepareStep]) -> str:
    """Run the steps. Return why a step failed; empty if all steps succeeded."""
    folder = _folder(work)
    ends = [folder / f"{step.name}.end" for step in steps]

    def written(_job_id: str) -> int:
        assets = sum(look_for(asset, work.out).bytes for asset in work.needs.assets)
        return assets + sum(path.stat().st_size for path in folder.glob("*.log"))

    def progress_text(done: int, _size: int) -> str:
        now = f", now {steps[done].name}" if done < len(steps) else ""
        return f"{done} of {len(steps)} steps done{now}"

    limits = Limits(queue_seconds=QUEUE_SECONDS, quiet_seconds=QUIET_SECONDS)
    text = render(work, steps, folder)
    _, ended = run_parts(work.site, folder / SCRIPT, text, ends, written, progress_text, limits)
    for step, end in zip(steps, ends, strict=True):
        code = end.read_text().strip() if end.exists() else ""
        if code != "0":
            how = f"exit code {code}" if code else f"the job ended: {ended.state}" if ended else "no progress"
            return f"{step.name}: {how} ({folder / f'{step.name}.log'})"
    return ""
