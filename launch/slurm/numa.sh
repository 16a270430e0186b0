# shellcheck shell=bash disable=SC2034 # task.sh uses bound and binding
# Sourced by task.sh if each task has its own GPU. It sets `bound`, the command that binds a program to the processors
# and the memory of the GPU's NUMA node, and `binding`, the record of that. A failure here does not end a run.

bus_id() { # prints the bus id of this task's GPU in the notation of /sys: 0000:1b:00.0
    local gpus=() gpu=$SLURM_LOCALID found
    IFS=, read -r -a gpus <<< "${CUDA_VISIBLE_DEVICES:-}"
    if ((${#gpus[@]})); then gpu=${gpus[SLURM_LOCALID % ${#gpus[@]}]}; fi
    if ! found=$(nvidia-smi --id="$gpu" --query-gpu=pci.bus_id --format=csv,noheader 2> /dev/null); then
        gpus=(/proc/driver/nvidia/gpus/0*) # in the order of the GPUs' numbers
        found=${gpus[gpu]##*/}
    fi
    found=${found//[[:space:]]/}
    found=${found: -12} # nvidia-smi prints 00000000:1B:00.0
    echo "${found,,}"
}

bind_to_gpu() {
    local gpu node="" cpus="" by="" why=""
    gpu=$(bus_id 2> /dev/null)
    if [ -z "$gpu" ]; then
        why="nvidia-smi does not show the GPU of this task"
    elif ! { read -r node < "/sys/bus/pci/devices/$gpu/numa_node"; } 2> /dev/null || ! ((node >= 0)); then
        why="/sys names no NUMA node of the GPU" node=""
    elif ! { read -r cpus < "/sys/devices/system/node/node$node/cpulist"; } 2> /dev/null; then
        why="/sys names no processors of NUMA node $node"
    elif numactl --cpunodebind="$node" --membind="$node" true 2> /dev/null; then
        bound=(numactl --cpunodebind="$node" --membind="$node") by=numactl
    elif taskset --cpu-list "$cpus" true 2> /dev/null; then
        bound=(taskset --cpu-list "$cpus") by=taskset # memory is then allocated on the same node, unless it is full
    else
        why="neither numactl nor taskset can bind to processors $cpus here"
    fi
    if [ -n "$why" ]; then echo "stepmark: this rank is bound to no NUMA node: $why" >&2; fi
    printf -v binding '{"gpu":"%s","node":%s,"cpus":"%s","by":"%s","why":"%s"}' \
        "$gpu" "${node:-null}" "$cpus" "$by" "$why"
}

bind_to_gpu
