"""HTTP statuses of errors."""

from __future__ import annotations

from ...errors import ExperimentNotFound, StoreError, StoreNotFound, StoreUnavailable

BUG = "the server has a bug here: its error output tells more"


def status_of(error: Exception) -> int:
    """Return the status of an answer that is an error."""
    if isinstance(error, ExperimentNotFound | StoreNotFound):
        return 404
    if isinstance(error, StoreUnavailable):
        return 503
    return 400 if isinstance(error, StoreError) else 500
