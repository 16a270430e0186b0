"""Start runs in the queue of a cluster. MLPerf submissions are first checked against the rules."""

from collections.abc import Iterator

from benchmarks.errors import StepmarkError, capture
from benchmarks.request.resolve import Request
from benchmarks.values import Benchmark, JobOptions
from launch.slurm.submit import SlurmRunner
from launch.terminal.progress import note


class SubmissionRunner(SlurmRunner):
    """A Slurm runner that also admits MLPerf submissions. It loads MLPerf's rules only for a submission."""

    def resolve_offline(self, request: Request) -> Benchmark:
        benchmark = super().resolve_offline(request)
        if benchmark.is_submission:
            from launch.mlperf.admit import admit

            for text in admit(benchmark, self._configs, self.options_of(benchmark)):
                note(text)
        return benchmark

    def options_of(self, benchmark: Benchmark) -> JobOptions:
        """Return the job options; the time limit of a submission is NVIDIA's, unless the user passed --time."""
        options = super().options_of(benchmark)
        if not benchmark.is_submission:
            return options
        from launch.mlperf.admit import with_its_time

        return with_its_time(benchmark, options, typed="time" in self._job.typed)

    def refusals(self, benchmark: Benchmark, *, patient: bool = False) -> Iterator[StepmarkError]:
        if benchmark.is_submission:
            from launch.mlperf.admit import refuse_missing_data

            yield from capture(lambda: refuse_missing_data(benchmark, self._configs))
        yield from super().refusals(benchmark, patient=patient)
