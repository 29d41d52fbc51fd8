"""The packages that extras bring: whether they can be used, and what to install where they cannot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from .errors import MissingDriver


@contextmanager
def needed(package: str, extra: str) -> Iterator[None]:
    """Where a driver is imported: whatever keeps it from that is raised as `MissingDriver`.

    So is a version below the lowest that our own requirements name, which may fail only when it is used.
    """
    found, lowest = _version(package), _lowest(package)
    if found and _numbers(found) < _numbers(lowest):
        raise MissingDriver(package, extra, f"{found} is too old", "-U ")
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name == package:
            raise MissingDriver(package, extra) from None
        raise _broken(package, extra, error) from None
    except Exception as error:  # a package that does not fit to its own dependencies may raise anything
        raise _broken(package, extra, error) from None


def _broken(package: str, extra: str, error: Exception) -> MissingDriver:
    reason = " ".join(str(error).split()) if isinstance(error, ImportError) else repr(error)
    return MissingDriver(package, extra, f"cannot be imported ({reason})", "--force-reinstall ")


def _version(package: str) -> str:
    """The version that is installed; empty where nobody can tell."""
    try:
        return metadata.version(package) or ""
    except metadata.PackageNotFoundError:
        return ""


def _lowest(package: str) -> str:
    """The lowest version that our own requirements name; empty where they cannot be read."""
    try:
        asked = metadata.requires("messager") or []
    except metadata.PackageNotFoundError:
        return ""
    bounds = (re.match(rf"{re.escape(package)}\b[^;]*>=\s*([\d.]+)", one) for one in asked)
    return next((bound[1] for bound in bounds if bound), "")


def _numbers(version: str) -> list[int]:
    """`2.5.0rc1` as [2, 5, 0], to compare."""
    found = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in found[0].split(".")] if found else []
