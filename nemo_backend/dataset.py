"""The program that makes a NeMo dataset: the command of make_dataset.py for one job."""

from benchmarks.assets.datasets import DatasetJob


def command(job: DatasetJob) -> list[str]:
    """With placeholders of a Phase: it runs inside NeMo's environment, wherever that is."""
    words = [
        "{python}",
        "-P",  # what lies beside the program is not to be imported in the place of NeMo's own
        "{repository}/nemo_backend/inside/make_dataset.py",
        *(f"--text={path.absolute()}" for path in job.texts),
        f"--folder={job.folder.absolute()}",
        f"--name={job.name}",
        f"--shards={job.shards}",
    ]
    if job.tokenizer is not None:
        return [*words, f"--tokenizer={job.tokenizer.absolute()}"]
    return [*words, f"--vocabulary_size={job.vocabulary_size}"]
