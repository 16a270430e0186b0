"""What a dry run shows of a submission. No memory and no step time: NVIDIA's own program decides both."""

from benchmarks.configs import Configs
from benchmarks.mlperf.asked import asked
from benchmarks.mlperf.submission_text import configuration_rows
from benchmarks.mlperf.variables import variables
from benchmarks.planning.plan_text import NOTHING_STARTED, phase_lines
from benchmarks.rendering.columns import aligned
from benchmarks.rendering.report import title
from benchmarks.values import Benchmark, Plan
from launch.mlperf import package


def submission_text(benchmark: Benchmark, plan: Plan, configs: Configs) -> str:
    definition, submission = configs.mlperf(benchmark.model.name), configs.submission(benchmark.model.name)
    points = package.reference_points(definition, submission.ruleset)
    asked_for = asked(variables(benchmark, submission), submission)
    rows = configuration_rows(asked_for, definition, submission, points)
    rows += [
        ("data", benchmark.data),
        ("recipe", f"{benchmark.recipe.name} ({benchmark.recipe.source})"),
        ("overrides", ", ".join(f"{key}={value}" for key, value in benchmark.overrides.items()) or "none"),
        ("runs in", plan.environment_name),
    ]
    return "\n".join([title(benchmark), "", *aligned(rows), *phase_lines(plan), "", NOTHING_STARTED])
