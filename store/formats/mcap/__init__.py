"""MCAP, written only: events as JSON messages with a schema, for Foxglove and the tools of MCAP."""

from .writer import export_mcap
from .writer import export_mcap as write

__all__ = ["export_mcap", "write"]
