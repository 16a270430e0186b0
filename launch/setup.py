"""Prepare a real run: checkpoints, tokenizers, datasets and sites.

List what a run needs, and what is missing:
  python launch/setup.py --model=llama3_70b --task=lora --out=DIR

Download the missing files; the same command resumes:
  export HF_TOKEN=YOUR_TOKEN
  python launch/setup.py --download --model=llama3_70b --task=lora --out=DIR

Write the file of a new site from Slurm and one node, then check two nodes:
  python launch/setup.py --new_site=NAME --partition=batch --account=ml

Prepare a site for your runs: folders, container images (imported by a job) or environments:
  python launch/setup.py --site=NAME --model=llama31_70b
  python launch/setup.py --site=NAME --engine=bridge --dry_run

Download the gated configuration for Megatron-Bridge once, for jobs that are offline:
  export HF_TOKEN=YOUR_TOKEN
  python launch/setup.py --site=NAME --engine=bridge --model=llama3_70b

Make the data and the model of an MLPerf benchmark with a job, in the container of its submission:
  python launch/setup.py --site=NAME --model=llama2_70b_lora --task=mlperf --out=DIR

Exit codes: 0 everything is ready, 1 something is missing or failed, 2 the request was wrong.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import os
import shlex
import sys
from pathlib import Path

from absl import flags

from benchmarks import assets
from benchmarks.errors import EXIT_VALID, RequestError
from benchmarks.mlperf.submission import read_submission
from benchmarks.request import images
from benchmarks.secret_rules import refuse_secrets
from benchmarks.values import SUBMISSION_ENGINE, JobOptions, Site
from launch.cli.command import refuse_more, run_main
from launch.slurm import job_flags, options
from launch.terminal import places
from launch.terminal.output import text_only

flags.adopt_module_key_flags(job_flags)  # --help shows only adopted flags
BACKEND = flags.DEFINE_string("backend", None, "Backend: jax, nemo or another installed one.")
MODEL = flags.DEFINE_string("model", None, "Model to train (configs/models).")
TASK = flags.DEFINE_enum("task", None, ["pretrain", "lora", "mlperf"], "Task of the run.")
OUT = flags.DEFINE_string("out", None, "Folder for all files.")

DOWNLOAD = flags.DEFINE_boolean("download", False, "Download the missing files.")
ASSET = flags.DEFINE_string("asset", None, "Download only this asset.")

NEW_SITE = flags.DEFINE_string("new_site", None, "Name of a new site; Stepmark writes its file from Slurm's report.")
HARDWARE = flags.DEFINE_string("hardware", None, "Device of a new site, if its nodes do not report it.")
SITE = flags.DEFINE_string("site", None, "Site to prepare; --out is the folder of its results.")
ENGINE = flags.DEFINE_string(
    "engine", None, "Prepare only this engine. (default: the engines that run.py uses without --engine)"
)
IMAGE = flags.DEFINE_string("image", None, "Image to import for the engine, as in run.py --image.")
FORCE = flags.DEFINE_boolean("force", False, "Import existing images again.")
DRY_RUN = flags.DEFINE_boolean("dry_run", False, "Show the job of a site without submitting it or writing files.")

JOB = {flag.name for flag in flags.FLAGS.get_flags_for_module(job_flags.__name__)}
OF_NEEDS = {"model", "task", "backend", "out"}
OF_A_SITE = {"site", "model", "image", "out", "force", "dry_run", *JOB}


def main(argv: list[str]) -> int:
    refuse_more(argv[1:], "python launch/setup.py --help")
    if NEW_SITE.value:
        doing, act, takes = "with --new_site", new_site, {"new_site", "hardware", "out", *JOB}
    elif SITE.value and TASK.value == "mlperf":
        doing, act, takes = "with --task=mlperf", mlperf_data, {*OF_A_SITE, "task"}
    elif SITE.value:
        doing, act, takes = "with --site", site, {*OF_A_SITE, "backend", "engine"}
    elif DOWNLOAD.value:
        doing, act, takes = "with --download", download_assets, {"download", "asset", *OF_NEEDS}
    else:
        doing, act, takes = "without --site", needed, OF_NEEDS
    others = [name for name in flags.FLAGS if flags.FLAGS[name].present and name not in {*takes, "json"}]
    if others:  # flags without effect must not be ignored silently
        raise RequestError(f"--{others[0]} has no effect {doing}", where=f"--{others[0]}")
    return act()


def _job_of(row: Site) -> tuple[JobOptions, int | None]:
    """Return the options of a job on the site, and its time limit in minutes if the user passes --time."""
    typed = job_flags.typed()
    options.refuse_without_slurm(row, typed)
    job = options.choose(row, typed, os.environ) if row.slurm else JobOptions()
    return job, options.seconds_of(typed["time"]) // 60 if "time" in typed else None


def new_site() -> int:
    """Write the file of a new site, and check two of its nodes."""
    from launch.sites import new_site as making

    wanted = making.NewSite(
        name=_given(NEW_SITE),
        typed=job_flags.typed(),
        hardware=HARDWARE.value,
        out=Path(OUT.value) if OUT.value else making.RESULTS,
        command=f"python launch/setup.py {shlex.join(word for word in sys.argv[1:] if word != '--json')}",
    )
    return making.make(wanted, places.configs())


def site() -> int:
    """Prepare a site: its folders, and the images or environments of its engines."""
    from launch.assets import site_hub
    from launch.environments import wanted
    from launch.environments.selection import refuse_unknown_engines
    from launch.sites import site_setup

    configs = places.configs()
    row = configs.site(_given(SITE))
    (job, minutes), image = _job_of(row), typed_image()
    refuse_unknown_engines(row)
    images.refuse_without_containers(image, row)
    devices = wanted.devices_of(row, configs)
    on = [device.name for device in devices]
    engines = wanted.specs(configs, wanted.platforms(row, configs), BACKEND.value, ENGINE.value, MODEL.value, on)
    if MODEL.value and row.slurm and row.runtime == "venv":
        wanted.refuse_untrainable(engines, row, MODEL.value, devices, configs)
    if row.runtime == "venv" and not (ENGINE.value or MODEL.value):
        engines = wanted.used_without_engine(engines, row, devices or [configs.hardware("cpu")], configs)
    if image and len(engines) > 1:
        raise RequestError(
            f"--image is for one engine, not for {', '.join(engines)}",
            where="--image",
            next_command=f"--engine={wanted.engine_of(next(iter(engines)))}",
        )
    if not any(flag.value for flag in (BACKEND, ENGINE, MODEL, IMAGE)):
        what = "--site also needs --model, --engine or --backend"
        raise RequestError(what, where=f"--site={SITE.value}", next_command="--model=llama2_tiny")
    work = wanted.Work(
        site=row,
        options=job,
        minutes=minutes,
        engines=engines,
        devices=devices,
        image=image,
        repositories=[
            one
            for name in engines
            if ENGINE.value or MODEL.value
            for one in site_hub.hub_repositories(BACKEND.value, wanted.engine_of(name), MODEL.value, configs)
        ],
        out=Path(OUT.value or "results"),
        force=bool(FORCE.value),
    )
    if DRY_RUN.value:
        text_only(site_setup.preview(work).rstrip())
        return EXIT_VALID
    return site_setup.set_up(work)


def typed_image() -> str | None:
    """Return the value of --image. Refuse the path of an image file, which needs no import."""
    if IMAGE.value and IMAGE.value.endswith(images.FILES):
        raise RequestError(
            "an image file needs no import",
            where=f"--image={IMAGE.value}",
            why="pass the file to run.py with --image, or pass --image=REGISTRY/NAME:TAG here",
        )
    refuse_secrets(IMAGE.value, "--image")
    return images.checked(IMAGE.value, "--image") if IMAGE.value else None


def mlperf_data() -> int:
    """Make the files that an MLPerf benchmark reads, with a job on a site."""
    from launch.environments import wanted
    from launch.mlperf.preparing import Preparation, prepare, preview

    configs = places.configs()
    row = configs.site(_given(SITE))
    job, minutes = _job_of(row)
    submission = read_submission(configs, _given(MODEL))
    devices = wanted.devices_of(row, configs)
    work = Preparation(
        site=row,
        options=job,
        minutes=minutes,
        submission=submission,
        image=wanted.image_for(row, SUBMISSION_ENGINE + submission.name, devices, typed_image()),
        needs=assets.choose(assets.read_all_needs(configs), submission.name, "mlperf", None),
        out=Path(_given(OUT)).absolute(),
        force=bool(FORCE.value),
    )
    if DRY_RUN.value:
        text_only(preview(work).rstrip())
        return EXIT_VALID
    return prepare(work)


def needed() -> int:
    """Print the table of the files that a run needs."""
    from launch.assets.needed import report

    return report(_needs(), _given(MODEL), Path(OUT.value) if OUT.value else None)


def download_assets() -> int:
    """Download every asset that can be downloaded and print the table, or download only the asset of --asset."""
    from launch.assets import hub

    needs, out = _needs(), Path(_given(OUT))
    wanted = [assets.find_asset(needs, ASSET.value)] if ASSET.value else [a for a in needs.assets if a.repository]
    for asset in wanted:
        hub.download_asset(hub.from_environment(), asset, out / asset.folder)
    return EXIT_VALID if ASSET.value else needed()


def _needs() -> assets.Needs:
    configs = places.configs()
    model = configs.model(_given(MODEL)).name
    return assets.choose(assets.read_all_needs(configs), model, _given(TASK), BACKEND.value)


def _given(flag: "flags.FlagHolder[str | None]") -> str:
    if not flag.value:
        raise RequestError(f"--{flag.name} is missing", next_command="python launch/setup.py --help")
    return flag.value


if __name__ == "__main__":
    run_main(main)
