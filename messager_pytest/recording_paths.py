"""Names and places of recordings, in the folder `recordings` beside the test file, and what a failure names of them."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path

FOLDER = "recordings"
"""Folder beside a test file that holds its recordings."""
SUFFIXES = (".jsonl", ".jsonl.gz")
_LONGEST = 100
"""Maximum length of a name in characters; file systems allow 255 bytes with the suffix."""
_UNSAFE = re.compile(r"[^\w.+=,@-]|[. ]$")


@dataclass(frozen=True, slots=True)
class Context:
    """Names that a failure shows besides the divergence."""

    recording: str
    """Path of the recording, for people."""
    rerun: str
    """Command that runs the test again, without options."""
    verbosity: int = 0
    """With 2 or more, every divergence is shown, in full length."""
    patience: float = 30.0
    """Seconds after which a message is given up."""
    ignored: tuple[str, ...] | None = None
    """Paths that the `Match` in the mark of the test is given to ignore; None if it has no `Match`."""

    @property
    def full(self) -> bool:
        """Return whether nothing is left out."""
        return self.verbosity >= 2


def default_path(test_file: Path, test: str) -> Path:
    """Return the path of the recording of a test without a name in its mark: `recordings/MODULE/TEST.jsonl`.

    `test` is the name of the test within its file, with classes and parameters.
    """
    return test_file.parent / FOLDER / test_file.stem / f"{file_name(test)}.jsonl"


def named_path(test_file: Path, name: str | os.PathLike[str]) -> Path:
    """Return the path of a recording that a mark names.

    A name is relative to the folder `recordings` beside the test file; a name that begins with `./` or `../` is
    relative to the folder of the test file.
    """
    text = os.fspath(name)
    relative = text.replace(os.sep, "/").startswith(("./", "../"))
    base = test_file.parent if relative else test_file.parent / FOLDER
    return Path(os.path.normpath(base / text))


def file_name(test: str) -> str:
    """Return a file name for a test, other than that of any other test, also if letter case does not count.

    Names that contain characters other than letters, digits and `_.+=,@-`, long names, and names of parameters with
    capital letters get a digest.
    """
    plain, opening, parameters = test.partition("[")
    name = plain.replace("::", ".")
    if opening:
        name += f".{parameters.removesuffix(']')}"
    safe = _UNSAFE.sub("_", name)
    if safe == name and len(name) <= _LONGEST and name.isascii() and parameters == parameters.lower():
        return name
    return f"{safe[:_LONGEST]}-{sha256(test.encode(errors='surrogatepass')).hexdigest()[:8]}"


def folders(test_files: Iterable[Path], root: Path) -> list[Path]:
    """Return the folders of recordings beside these test files, and beside their parent folders up to `root`."""
    found: set[Path] = set()
    for folder in {file.parent for file in test_files}:
        for parent in (folder, *folder.parents):
            if (parent / FOLDER).is_dir():
                found.add(parent / FOLDER)
            if parent == root or root not in parent.parents:
                break
    return sorted(found)


def recordings_in(found: Iterable[Path]) -> Iterator[Path]:
    """Yield the recordings in these folders, sorted."""
    for folder in found:
        yield from sorted(path for path in folder.rglob("*") if path.name.endswith(SUFFIXES) and path.is_file())


def similar(path: Path) -> str | None:
    """Return the name of the recording in the same folder whose name is most like this one; None if none is."""
    names = [other.name for other in recordings_in([path.parent])]
    return next(iter(get_close_matches(path.name, names, 1, 0.8)), None)


def shown(path: Path, base: Path) -> str:
    """Return a path as a person at `base` would write it."""
    try:
        text = os.path.relpath(path, base)
    except ValueError:  # another drive
        return str(path)
    return str(path) if text.startswith(os.path.join("..", "..", "..")) else text


def rerun(nodeid: str, rootdir: Path, base: Path, *options: str) -> str:
    """Return the command that runs one test again from the folder `base`, in the way in which this run was started.

    `python -m pytest` has that folder in its import path, and `pytest` does not.
    """
    file, separator, rest = nodeid.partition("::")
    program = ["python", "-m", "pytest"] if Path(sys.argv[0]).name == "__main__.py" else ["pytest"]
    return shlex.join([*program, f"{shown(rootdir / file, base)}{separator}{rest}", *options])
