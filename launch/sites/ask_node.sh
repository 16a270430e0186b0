# Prints the facts of one node, one per line. srun passes the script's text to `sh -c`, so the node needs no Stepmark.
# Arguments: PATH...
echo "node ${SLURMD_NODENAME:-$(hostname)}"
if gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null); then
  echo "$gpus" | sed 's/^/gpu /'
fi
sed 's/^/mount /' /proc/self/mounts
for path in "$@"; do
  if [ -e "$path" ]; then echo "seen $path"; fi
done
