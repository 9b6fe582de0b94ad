"""Memory in the processes that rmdn runs for itself: its demo, the workers of a grid."""

from __future__ import annotations

import ctypes
import platform

# mallopt's names for its settings, from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_MOST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Keep what PyTorch gives back for its next request; says whether this system's C library was asked to.

    Training on CPUs asks for the same tens of megabytes at every step. By its defaults glibc hands them back to the system
    each time, which clears every page anew: a quarter of the time of the paper's CNN. It holds for the whole process, so it
    is for processes of our own, not for a user's.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(_MMAP_MAX, 0) and libc.mallopt(_TRIM_THRESHOLD, _MOST))
