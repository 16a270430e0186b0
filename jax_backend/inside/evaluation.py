"""Evaluates between two steps of MaxText's loop, and ends it at the target.

Runs inside MaxText's environment, loaded by its path. MaxText's own trigger would evaluate while the step before is
still to be written down, so that its time would hold the evaluation's; here a step is waited for first. The compiled
evaluation step and the iterator are MaxText's own.
"""

import time
from typing import Any


def between_steps(iteration: Any, evaluations: Any, clock: Any) -> Any:
    """MaxText's function of one step, with an evaluation after the steps that the goal names."""

    def iterate(device_state: Any, python_variables: Any, immutable_data: Any) -> Any:
        import jax

        metrics = iteration(device_state, python_variables, immutable_data)
        step = python_variables["step"]
        if evaluations.goal.due(step + 1):
            jax.block_until_ready(device_state["state"])
            clock.ends[step] = begun = time.perf_counter()
            loss = evaluation_loss(device_state, python_variables["eval_data_iterator"], immutable_data)
            seconds = time.perf_counter() - begun
            clock.pause(step, seconds)
            if evaluations.take(step + 1, seconds, loss):
                immutable_data["steps"] = step + 1
        return metrics

    return iterate


def evaluation_loss(device_state: Any, batches: Any, immutable_data: Any) -> float:
    """The mean over all tokens of all batches; the same number on every process."""
    import jax
    from flax.core.spmd import logical_axis_rules
    from maxtext.utils import sharding

    config, mesh = immutable_data["config"], device_state["mesh"]
    rules = immutable_data["logical_axis_rules_for_eval"]
    batches.reset()
    total = weight = 0.0
    for _, batch in zip(range(immutable_data["eval_steps"]), batches, strict=False):
        placed = jax.device_put(batch, sharding.get_input_data_sharding(config, mesh, rules=rules))
        with jax.set_mesh(mesh), logical_axis_rules(rules):
            scalars = device_state["p_eval_step"](device_state["state"], placed)["scalar"]
        total += float(scalars["evaluation/total_loss"])
        weight += float(scalars["evaluation/total_weights"])
    return total / weight
