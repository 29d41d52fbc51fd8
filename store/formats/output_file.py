"""A file that appears under its name when it is complete, and not before."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..db.sqlite.file import is_database
from ..errors import StoreError


@contextlib.contextmanager
def written(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write that appears under its name only when all went well."""
    if str(path) == "-":
        yield _Terminal() if sys.stdout.isatty() else sys.stdout.buffer  # type: ignore[misc]
        sys.stdout.buffer.flush()
        return
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device; /dev/fd/63 has no path of its own
        try:
            with open(path, "wb") as direct:
                yield direct
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror or error}") from None
        return
    target = Path(os.path.realpath(path))
    if (store := _store_of(target)) is not None:
        raise StoreError(f"{target} belongs to the store {store}, and would replace it: write to another file with -o")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as raw:
            if Path(path).suffix.lower() == ".gz":
                # no name and no time inside, so that the same events give the same bytes
                with gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
                    yield packed  # type: ignore[misc]
            else:
                yield raw
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, target)
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _store_of(target: Path) -> Path | None:
    """The SQLite file that `target` is, or is beside as its write-ahead log or spool; None where it is another file."""
    stores = [target]
    for part, suffixes in ((target, ("-wal", "-shm", "-journal")), (target.parent, ("-spool",))):
        stores += [part.with_name(part.name[: -len(end)]) for end in suffixes if part.name[1:].endswith(end)]
    for store in stores:
        with contextlib.suppress(OSError):
            if is_database(store):
                return store
    return None


class _Terminal:
    """Standard output where a person looks at it: the same JSON, with nothing that a terminal would obey."""

    def write(self, line: bytes) -> None:
        sys.stdout.buffer.write(json.dumps(json.loads(line)).replace("\x7f", "\\u007f").encode() + b"\n")
