# What one node sees, a fact a line. srun gives it to `sh -c`, so that nothing of Stepmark's need be there.   PATH...
echo "node ${SLURMD_NODENAME:-$(hostname)}"
if gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>&1); then
  echo "$gpus" | sed 's/^/gpu /'
else
  echo "no_gpu nvidia-smi: ${gpus##*: }"
fi
sed 's/^/mount /' /proc/self/mounts
for path in "$@"; do
  if [ -e "$path" ]; then echo "seen $path"; fi
done
