#!/bin/bash
# A stand-in for NVIDIA's run_and_time.sh, which trains nothing: it writes the lines of an MLLOG as rank 0 of a
# submission does, with the numbers that it was steered by. Its clock is made up: a step takes 2.5 s and the evaluation
# 1 s, without anybody waiting. STAND_IN_LOSS is the loss of its last evaluation.
set -u
clock=$(date +%s%3N)
mllog() { # EVENT KEY VALUE METADATA
    printf ':::MLLOG {"namespace": "", "time_ms": %s, "event_type": "%s", "key": "%s", "value": %s, "metadata": {"file": "stand-in", "lineno": 1%s}}\n' \
        "$clock" "$1" "$2" "$3" "${4:+, $4}"
}
echo "rank $RANK of $WORLD_SIZE meets $MASTER_ADDR:$MASTER_PORT, SEED $SEED"
[ -s /data/train.npy ] && [ -d /ckpt ] && [ -w /results ] || exit 7
[ "$RANK" = 0 ] || exit 0
batch=$((MINIBS * DGXNNODES * DGXNGPU / TP / PP / CP)) first=$((4 * VAL_CHECK_INTERVAL))
mllog INTERVAL_START init_start null
mllog POINT_IN_TIME submission_benchmark '"llama2_70b_lora"'
mllog POINT_IN_TIME global_batch_size "$batch"
mllog POINT_IN_TIME opt_base_learning_rate "$LR"
mllog INTERVAL_END init_stop null
mllog INTERVAL_START run_start null
mllog INTERVAL_START block_start null '"samples_count": '"$first"', "step": 0'
for step in 1 2 3 4; do
    clock=$((clock + 2500))
    mllog POINT_IN_TIME tracked_stats '{"train_loss": 1.'"$((9 - step))"'}' '"step": '"$step"
done
mllog INTERVAL_END block_stop null '"samples_count": '"$first"
mllog INTERVAL_START eval_start null '"samples_count": '"$first"
clock=$((clock + 1000))
mllog POINT_IN_TIME eval_accuracy "$STAND_IN_LOSS" '"samples_count": '"$first"
mllog INTERVAL_END eval_stop null '"samples_count": '"$first"
status=aborted
if awk "BEGIN { exit !($STAND_IN_LOSS <= 0.925) }"; then status=success; fi
mllog INTERVAL_END run_stop null '"status": "'"$status"'", "samples_count": '"$first"
