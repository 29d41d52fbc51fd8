"""Refusal: all conditions under which a redaction is not carried out."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db.schema import recorder
from ..errors import DamagedStore, ExperimentBusy, StoreError
from ..experiments.provenance import this_process
from ..experiments.records import Experiment, RecorderRow
from ..experiments.seal import seal_of
from ..recording.repair import left_spool
from .redaction_filter import RedactionFilter


def check_allowed(of: Experiment, recorders: list[RecorderRow], chosen: RedactionFilter, *, who: str, why: str) -> None:
    """Raise an error if the redaction is refused. In a refused redaction, nothing is changed.

    A redaction is refused if
    - `who` or `why` is empty or contains the text that is to be redacted (`check_reason`: `StoreError`),
    - the filter has no condition or an invalid one (`check_reason`: `StoreError`; `BadCursor` from the search),
    - a recorder is alive (`check_recorders`: `ExperimentBusy`),
    - a spool may hold more events of the experiment (`check_recorders`: `StoreError`),
    - other recorders write each time between the search and the transaction (`written_meanwhile`: `ExperimentBusy`),
    - the events do not match their hash chain (`chain_broken`: `DamagedStore`), or a recorder's row its seal
      (`check_seals`: `DamagedStore`).

    The last three are only known inside the transaction; they are raised there and roll it back.
    """
    check_reason(chosen, who=who, why=why)
    check_recorders(of, recorders)


def check_reason(chosen: RedactionFilter, *, who: str, why: str) -> None:
    """Raise `StoreError` for an invalid filter, or a `who` or `why` that is empty or contains the searched text."""
    if not why.strip() or not who.strip():
        raise StoreError("a redaction is recorded with its author and its reason: say who and why")
    contains_redacted = chosen.checked().matcher(any_condition=True)
    for option, text in (("who", who), ("why", why)):
        if contains_redacted is not None and contains_redacted(text.encode("utf-8", "surrogateescape")):
            raise StoreError(
                f"{option} is kept with the experiment and contains the text that is to be redacted: rephrase it"
            )


def check_recorders(of: Experiment, recorders: list[RecorderRow]) -> None:
    """Raise `ExperimentBusy` while a recorder is alive, and `StoreError` if one may have left events in a spool."""
    alive = [row for row in recorders if row.state == "alive"]
    if alive:
        raise ExperimentBusy(
            of.exp_id,
            (f"recorder {row.ordinal} ({row.host}, pid {row.pid})" for row in alive),
            remedy="End it first, or fence it with `messager close --force`.",
        )
    here = this_process().host
    for row in recorders:
        if row.spool is None:
            continue
        if left_spool(row) is not None:
            raise StoreError(
                f"recorder {row.ordinal} of {of.exp_id} left events in {row.spool}. "
                "Drain them first with `messager drain`"
            )
        if row.state == "unclean" and row.host != here:
            raise StoreError(
                f"recorder {row.ordinal} of {of.exp_id} ended uncleanly on {row.host} and may have left events there "
                f"in {row.spool}. Drain it there with `messager drain`, or end it with `messager repair`"
            )


def written_meanwhile(of: Experiment) -> ExperimentBusy:
    """Return the error for an experiment in which recorders wrote during each attempt."""
    return ExperimentBusy(of.exp_id, ["other recorders"], remedy="Redact it when no recorder writes.")


def chain_broken(location: str, of: Experiment, row: RecorderRow, seq: int) -> DamagedStore:
    """Return the error for a batch that does not match its hashes: new hashes would hide the damage."""
    place = f"{of.exp_id}, recorder {row.ordinal}, batch at seq {seq} does not match its hash chain"
    return DamagedStore(location, f"{place}; `messager verify` has the details, nothing was redacted")


async def check_seals(connection: AsyncConnection, location: str, of: Experiment) -> None:
    """Raise `DamagedStore` if the row of a recorder does not have its seal: a new seal would hide the change."""
    rows = await connection.execute(select(recorder).where(recorder.c.experiment_id == of.id))
    for row in rows.mappings():
        if row["seal"] != seal_of(row):
            place = f"{of.exp_id}, recorder {row['ordinal']}: its row was changed since it ended"
            raise DamagedStore(location, f"{place}; `messager verify` has the details, nothing was redacted")
