#!/bin/bash
# One task of the stand-in for pyxis, in a mount namespace of its own.   enter.sh IMAGE MOUNTS WORKDIR COMMAND...
set -eu
image=$1 mounts=$2 workdir=$3
shift 3
[ -d "$image.d" ] || { echo "pyxis: couldn't start container: $image.d (a stand-in's)" >&2; exit 1; }
place=/tmp/stand-in-pyxis
mkdir -p "$place"
mount -t tmpfs stand-in "$place"
mkdir "$place/upper" "$place/work" "$place/root"
cp -a "$image.d/." "$place/upper/"
mount -t overlay stand-in -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" "$place/root"
for folder in /proc /sys /dev; do mount --rbind "$folder" "$place/root$folder"; done
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
