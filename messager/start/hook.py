"""Hook of the Python environment: a `.pth` file that starts the recording of programs of a run.

For programs that PYTHONPATH does not reach, such as `python -I` and `python -E`. It does nothing outside of a run
(`messager run`), and nothing at all once messager is not installed any more. `pip uninstall messager` removes it, as it
is listed in the RECORD of the package.
"""

from __future__ import annotations

import sysconfig
from importlib import metadata
from pathlib import Path

NAME = "messager-start.pth"
_CODE = "try:\\n from messager.start import begin\\n begin()\\nexcept ImportError:\\n pass"
LINE = f"import os; exec(\"{_CODE}\") if os.environ.get('MESSAGER_RUN') else None\n"


def hook_file() -> Path:
    """Return the file of the hook of this environment, which exists only if the hook is installed."""
    return Path(sysconfig.get_path("purelib")) / NAME


def install() -> Path:
    """Install the hook, and return its file. Raises `OSError` if the environment may not be written."""
    path = hook_file()
    path.write_text(LINE)
    record = _record()
    if record is not None and NAME not in (text := record.read_text()):
        record.write_text(f"{text.rstrip()}\n{NAME},,\n")
    return path


def remove() -> bool:
    """Remove the hook; return whether there was one. Raises `OSError`."""
    record = _record()
    if record is not None:
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(line for line in lines if not line.startswith(f"{NAME},")))
    there = hook_file().exists()
    hook_file().unlink(missing_ok=True)
    return there


def _record() -> Path | None:
    """Return the list of the files of the installed package; None if it has none in this environment."""
    try:
        files = metadata.distribution("messager").files or []
    except metadata.PackageNotFoundError:
        return None
    found = next((file for file in files if file.name == "RECORD"), None)
    path = None if found is None else Path(str(found.locate()))
    return path if path is not None and path.parent.parent == hook_file().parent else None
