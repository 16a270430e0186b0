"""Replace this process with a program to which the kernel sends SIGTERM when the launcher ends.

    ends_with_launcher.py PROGRAM...

A killed launcher cannot stop its containers. So the kernel signals the docker or podman client, which forwards the
signal to its container. This works only on Linux.
"""

import ctypes
import os
import signal
import sys

SET_PARENT_DEATH_SIGNAL = 1

ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
os.execv(sys.argv[1], sys.argv[1:])
