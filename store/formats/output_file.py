"""Output files that appear under their name only when they are complete."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import OutputFailed, StoreError


@contextlib.contextmanager
def open_output(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file to write, `-` for standard output. It replaces an existing file when the block ends without error.

    A name that ends in `.gz` is compressed; equal contents give equal bytes. Raise `StoreError` for a path that
    cannot be written or belongs to a store, and `OutputFailed` if writing fails, for example because the disk is full.
    """
    if str(path) == "-":
        yield _Terminal() if sys.stdout.isatty() else sys.stdout.buffer  # type: ignore[misc]
        sys.stdout.buffer.flush()
    elif os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device, which cannot be replaced
        with _opening(path):
            direct = open(path, "wb")  # noqa: SIM115
        with _writing(path), direct:
            yield direct
    else:
        with _replacing(Path(os.path.realpath(path)), compressed=Path(path).suffix.lower() == ".gz") as file:
            yield file


@contextlib.contextmanager
def _replacing(target: Path, *, compressed: bool) -> Iterator[BinaryIO]:
    from ..db.databases import store_of  # slow to import, and not needed for the mode of a file

    if (store := store_of(target)) is not None:
        raise StoreError(f"{target} belongs to the store {store}, and would replace it: write to another file with -o")
    with contextlib.ExitStack() as stack:
        with _opening(target):
            with contextlib.suppress(FileNotFoundError):
                os.lstat(target)  # a name that is too long would be noticed at the end only
            handle, name = tempfile.mkstemp(".part", f".{target.name[:30]}.", target.parent)
            made = Path(name)
            stack.callback(made.unlink, missing_ok=True)
        with _writing(target):
            with os.fdopen(handle, "wb") as raw:
                if compressed:
                    # without name and time, so that equal events give equal bytes
                    with gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
                        yield packed  # type: ignore[misc]
                else:
                    yield raw
            made.chmod(mode_at(target, 0o666))
            made.replace(target)


def mode_at(target: Path, new: int) -> int:
    """Return the mode of what replaces a path: that of what is there, else `new` without the bits of the umask."""
    try:
        return stat.S_IMODE(os.stat(target).st_mode)
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return new & ~mask


@contextlib.contextmanager
def _opening(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}. Choose another file with -o.") from None


@contextlib.contextmanager
def _writing(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputFailed(str(path), error.strerror or str(error)) from None


class _Terminal:
    """Standard output on a terminal: the same JSON, with control characters escaped."""

    def write(self, lines: bytes) -> None:
        for line in lines.split(b"\n")[:-1]:
            sys.stdout.buffer.write(json.dumps(json.loads(line)).replace("\x7f", "\\u007f").encode() + b"\n")
