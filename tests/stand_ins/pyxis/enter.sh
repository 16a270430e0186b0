#!/bin/bash
# One task of the stand-in for pyxis, in a mount namespace of its own.   enter.sh IMAGE NAME MOUNTS WORKDIR COMMAND...
# A container with a name is unpacked once a node, into a folder of the node's own, and stays there (see enroot).
set -eu
image=$1 name=$2 mounts=$3 workdir=$4
shift 4
[ -d "$image.d" ] || { echo "pyxis: couldn't start container: $image.d (a stand-in's)" >&2; exit 1; }
files=$image.d
if [ -n "$name" ]; then
    files="$STAND_IN_STORE/$SLURMD_NODENAME/pyxis_$name"
    mkdir -p "${files%/*}"
    if [ ! -e "$files" ] && [ "$SLURM_LOCALID" = 0 ]; then
        mkdir "$files" || { echo "pyxis:     [ERROR] File already exists: $files" >&2; exit 1; }
        cp -a "$image.d/." "$files/"
        echo "unpacked $name on $SLURMD_NODENAME" >> "$STAND_IN_LOG"
        touch "$files/.complete"
    fi
    until [ -e "$files/.complete" ]; do sleep 0.1; done
fi
place=/tmp/stand-in-pyxis
mkdir -p "$place"
mount -t tmpfs stand-in "$place"
mkdir "$place/upper" "$place/work" "$place/root"
cp -a "$files/." "$place/upper/"
mount -t overlay stand-in -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" "$place/root"
for folder in /proc /sys /dev; do mount --rbind "$folder" "$place/root$folder"; done
for folder in bus/pci/devices devices/system/node; do # the machine's GPUs and processors, where a test has others
    if [ -d "$image.d/sys/$folder" ]; then mount --bind "$image.d/sys/$folder" "$place/root/sys/$folder"; fi
done
IFS=,
for one in $mounts; do
    from=${one%%:*} rest=${one#*:}
    to=${rest%%:*}
    [ -d "$from" ] || { echo "pyxis: couldn't mount $from (a stand-in's)" >&2; exit 1; }
    mkdir -p "$place/root$to"
    mount --bind "$from" "$place/root$to"
    case $rest in *:ro) mount -o remount,bind,ro "$place/root$to" ;; esac
done
unset IFS
# shellcheck disable=SC2016 # the inner shell expands them
exec chroot "$place/root" bash -c 'cd "$0" && exec "$@"' "$workdir" "$@"
