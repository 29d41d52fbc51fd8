"""Optional packages: check that they can be used, and name what to install if they cannot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from .errors import MissingDriver


@contextmanager
def needed(package: str) -> Iterator[None]:
    """Where a driver is imported: whatever keeps it from that is raised as `MissingDriver`.

    So is a version below the lowest that our own requirements name, which may fail only when it is used.
    """
    found, lowest = _version(package), _lowest(package)
    if found and _numbers(found) < _numbers(lowest):
        raise MissingDriver(package, requirement(package), f"{found} is too old", "-U ")
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name == package:
            raise MissingDriver(package, requirement(package)) from None
        raise _broken(package, error) from None
    except Exception as error:  # a package that does not fit to its own dependencies may raise anything
        raise _broken(package, error) from None


def requirement(package: str) -> str:
    """A package with the version bounds of our own requirements; without bounds where these cannot be read."""
    try:
        asked = metadata.requires("messager") or []
    except metadata.PackageNotFoundError:
        asked = []
    return next((one.partition(";")[0].strip() for one in asked if re.match(rf"{re.escape(package)}\b", one)), package)


def _broken(package: str, error: Exception) -> MissingDriver:
    reason = " ".join(str(error).split()) if isinstance(error, ImportError) else repr(error)
    return MissingDriver(package, requirement(package), f"cannot be imported ({reason})", "--force-reinstall ")


def _version(package: str) -> str:
    """The version that is installed; empty where nobody can tell."""
    try:
        return metadata.version(package) or ""
    except metadata.PackageNotFoundError:
        return ""


def _lowest(package: str) -> str:
    """The lowest version that our own requirements name; empty where they cannot be read."""
    bound = re.search(r">=\s*([\d.]+)", requirement(package))
    return bound[1] if bound else ""


def _numbers(version: str) -> list[int]:
    """`2.5.0rc1` as [2, 5, 0], to compare."""
    found = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in found[0].split(".")] if found else []
