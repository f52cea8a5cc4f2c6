"""A child process that does not outlive the process it was started for, however that one ends.

`python -m gateway.parent COMMAND…` becomes a command that knows nothing of this, and ends with its parent: on Linux.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1
_READ_BYTES = 4096


def stop_with_parent() -> None:
    """Send this process SIGTERM once its parent is gone: when standard input, whose other end the parent holds, ends.

    On Linux the kernel sends it too, when the thread that started this process ends: the pipe alone would stay open
    for as long as a fork of the parent holds it.
    """
    _ask_for_sigterm()
    threading.Thread(target=_stop_at_end_of_input, name="parent", daemon=True).start()


def _ask_for_sigterm() -> None:
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the request was in place
        sys.exit(1)


def _stop_at_end_of_input() -> None:
    # The descriptor, not `sys.stdin`: a buffered reader that still reads when the interpreter ends is a fatal error.
    while os.read(0, _READ_BYTES):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _ask_for_sigterm()
    os.execvp(sys.argv[1], sys.argv[1:])
