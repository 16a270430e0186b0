"""What MaxText is told of a run that trains towards a target: text, evaluation, optimizer and schedule."""

from benchmarks.convergence.goals import TRAIN, VALIDATION, evaluation_batches, text_folder
from benchmarks.values import Benchmark, Scalar, Schedule

NEVER = 10**9  # MaxText's own trigger: evaluation.py is asked instead
SEED = 1234  # Megatron's: with it, MaxText reads the same sequences in the same order


def schedule_settings(schedule: Schedule) -> dict[str, Scalar]:
    """MaxText's optimizer and learning rate. It counts the warm-up in a fraction of the steps, rounded down."""
    steps = schedule.steps
    return {
        "learning_rate": schedule.learning_rate,
        "learning_rate_final_fraction": schedule.final_learning_rate / schedule.learning_rate,
        "learning_rate_schedule_steps": steps,
        "warmup_steps_fraction": (schedule.warmup_steps + 0.5) / steps if schedule.warmup_steps else 0.0,
        "lr_schedule_type": "cosine",
        "opt_type": "adamw",
        "adam_b1": schedule.beta1,
        "adam_b2": schedule.beta2,
        "adam_eps": schedule.epsilon,
        "adam_weight_decay": schedule.weight_decay,
        "adamw_mask": "['norm']",  # as Megatron, which decays matrices alone
        "gradient_clipping_threshold": schedule.clip_norm,
    }


def text_settings(benchmark: Benchmark) -> dict[str, Scalar]:
    """MaxText's own reader of Megatron's files, and its evaluation step without its trigger."""
    index = "{phase_dir}/maxtext/index"
    files = {part: f"{text_folder(benchmark)}/{part}/{part}_00_text_document" for part in (TRAIN, VALIDATION)}
    return {
        "dataset_type": "grain",
        "grain_file_type": "mmap_npy",
        "grain_train_files": f"{index}/{TRAIN}|{files[TRAIN]}",
        "grain_eval_files": f"{index}/{VALIDATION}|{files[VALIDATION]}",
        "grain_worker_count": 0,
        "grain_worker_count_eval": 0,
        "mmap_eod_id": 0,
        "reset_attention_mask": False,
        "eod_mask_loss": False,
        "data_shuffle_seed": SEED,
        "eval_interval": NEVER,
        "eval_start_step": NEVER,
        "eval_steps": evaluation_batches(benchmark),
    }


def stated(benchmark: Benchmark) -> dict[str, Scalar]:
    """All that the benchmark fixes."""
    towards = benchmark.convergence
    return {**schedule_settings(towards.schedule), **text_settings(benchmark)} if towards else {}
