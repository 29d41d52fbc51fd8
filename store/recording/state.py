"""States of a recorder, which decide the next step of its committer."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """State of a recorder.

        begin()                                start()
           |                                      |
           v              registered              v    no answer
      REGISTERING ---------------------------> COMMITTING ------> RETRYING
        |    ^                                  |  ^  ^             |  |
        |    |                           fenced |  |  '-accepted----'  |
        |    | as a successor,                  v  | own row           | fenced
        |    | once an event waits             FENCED <----------------'
        |    |                                  |   |
        |    '------------ CLOSED <-------------'   |
        |    experiment closed or removed, store    | the same, if the recorder
        |    replaced, or row used by another       | may have no successor
        | refused                                   v
        '----------------------------------------> ENDED

    `stop` leads to ENDED from every state: the rest is committed first, or left in the spool after `STOP_SECONDS`.
    """

    REGISTERING = "registering"
    """The store has no row for this recorder yet. Register, and retry while the store is unreachable."""
    COMMITTING = "committing"
    """The store accepted the last batch. Append the next one."""
    RETRYING = "retrying"
    """The store did not answer. Read what it committed, then append again. Events go to the spool earlier."""
    FENCED = "fenced"
    """The store refused a batch: a repair, a drain or a closing ended the recorder. Take over its own row, if
    the experiment is open, else continue as a successor, if the recorder may have one."""
    CLOSED = "closed"
    """The log accepts no more events of this recorder. A successor with a new row continues; it
    registers as soon as an event waits."""
    ENDED = "ended"
    """Nothing more is recorded. Events that the store did not accept are in the spool."""
