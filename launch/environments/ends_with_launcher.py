"""Replace this process with a program that gets a signal to end when the launcher is gone.

    ends_with_launcher.py PROGRAM...

A killed launcher cannot end its containers, but the clients of docker and podman pass this signal on. (Linux)
"""

import ctypes
import os
import signal
import sys

SET_PARENT_DEATH_SIGNAL = 1

ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
os.execv(sys.argv[1], sys.argv[1:])
