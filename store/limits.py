"""Limits of what files and programs may give the store. docs/formats.md has the table of them.

A file within all limits is read in at most 1.5 GB. Read these as `limits.NAME`, so that a test can lower one.
"""

from __future__ import annotations

MOST_LINE = 256 * 1024 * 1024
"""Bytes of a line, uncompressed, and of its text in memory. One event must fit into a line; Redis disconnects a
subscriber at 32 MB."""
MOST_CHARACTERS = 64 * 1024 * 1024
"""Characters of a row of CSV, and of a JSON value in a file of another program."""
MOST_RECORDING = 64 * 1024 * 1024
"""Bytes of a recording of the pytest plugin, uncompressed: it is kept in memory."""
MOST_PARTS = 1_000_000
"""Values in a line of JSON, and fields in a row of CSV: each takes many times its bytes in memory."""
MOST_COLUMNS = 10_000
"""Columns of a CSV file."""
MOST_DEPTH = 100
"""Nesting of ids and meta."""
MOST_NAME = 1024 * 1024
"""Bytes of a channel, an id or a message id."""
MOST_META = 1024 * 1024
"""Characters of the meta, as JSON, of an experiment, a recorder or an event: lists read all of them."""
