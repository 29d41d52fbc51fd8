"""Permissions in tests that root runs: nothing is denied to root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

NOBODY = 65534


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Context in which this process, if it is one of root, is one of another user."""
    if os.geteuid() != 0:
        yield
        return
    if not hasattr(os, "setresuid"):
        pytest.skip("root can only become another user for a while where there is setresuid")
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def obey_permissions() -> None:
    """Apply permissions to this process, also if it is one of root. Call it before threads start.

    Raises `OSError`, and `AttributeError` where root has no capabilities to drop.
    """
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    data = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice 32 bits
    for call in (libc.capget, libc.capset):
        if call(header, data):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        for at in (0, 1):
            data[at] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


@contextlib.contextmanager
def folder_of_nobody() -> Iterator[Path]:
    """Context with a folder of the user of `unprivileged`."""
    folder = Path(tempfile.mkdtemp())
    try:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, -1)
        yield folder
    finally:
        for path in (folder, *folder.iterdir()):
            path.chmod(0o700)
        shutil.rmtree(folder)
