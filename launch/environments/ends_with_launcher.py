"""Becomes the program that it is given, which is told to end when the launcher is gone.

    ends_with_launcher.py PROGRAM...

A launcher that is killed outright can end no container; docker's and podman's clients hand this signal on. (Linux)
"""

import ctypes
import os
import signal
import sys

SET_PARENT_DEATH_SIGNAL = 1

ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
os.execv(sys.argv[1], sys.argv[1:])
