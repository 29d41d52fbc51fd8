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

    `package` is the name to install it by, `module` the one to import it by, if these differ.
    """
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
