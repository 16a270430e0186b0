# What one node sees, a fact a line. srun gives it to `sh -c`, so that nothing of Stepmark's need be there.   PATH...
echo "node ${SLURMD_NODENAME:-$(hostname)}"
if gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null); then
  echo "$gpus" | sed 's/^/gpu /'
fi
sed 's/^/mount /' /proc/self/mounts
for path in "$@"; do
  if [ -e "$path" ]; then echo "seen $path"; fi
done
