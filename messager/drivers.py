"""Optional packages: check that they can be used, and name what to install if they cannot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from .errors import MissingDriver


@contextmanager
def needed(package: str, module: str | None = None) -> Iterator[None]:
    """Context in which a driver is imported. Raises `MissingDriver` for any error.

    `package` is the name to install it by, `module` the one to import it by, if these differ. A version below the
    lowest one of our own requirements is refused too, as it may fail only when it is used.
    """
    found, lowest = _version(package), _lowest(package)
    if found and _numbers(found) < _numbers(lowest):
        raise MissingDriver(package, requirement(package), f"{found} is too old", "-U ")
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name == (module or package):
            raise MissingDriver(package, requirement(package)) from None
        raise _broken(package, error) from None
    except Exception as error:  # a package that does not fit its own dependencies may raise anything
        raise _broken(package, error) from None


def requirement(package: str) -> str:
    """Return a package with the version bounds of our own requirements; without bounds if these cannot be read."""
    try:
        asked = metadata.requires("messager") or []
    except metadata.PackageNotFoundError:
        asked = []
    return next((one.partition(";")[0].strip() for one in asked if re.match(rf"{re.escape(package)}\b", one)), package)


def _broken(package: str, error: Exception) -> MissingDriver:
    reason = " ".join(str(error).split()) if isinstance(error, ImportError) else repr(error)
    return MissingDriver(package, requirement(package), f"cannot be imported ({reason})", "--force-reinstall ")


def _version(package: str) -> str:
    """Return the installed version; empty if it is unknown."""
    try:
        return metadata.version(package) or ""
    except metadata.PackageNotFoundError:
        return ""


def _lowest(package: str) -> str:
    """Return the lowest version that our own requirements name; empty if they cannot be read."""
    bound = re.search(r">=\s*([\d.]+)", requirement(package))
    return bound[1] if bound else ""


def _numbers(version: str) -> list[int]:
    """Return `2.5.0rc1` as [2, 5, 0], which can be compared."""
    found = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in found[0].split(".")] if found else []
