"""Pack: one experiment in one file, with everything that its head is computed from; gzip if the name ends in .gz.

A pack is lines of JSON, in this order: the format; the experiment; its recorders; its redactions; then, for each
recorder in order, every batch followed by its events; and an end line with the SHA-256 of all lines above. Bytes are
hexadecimal in rows; in events they are text, or base64 if they are not UTF-8.
"""

from .reader import unpack
from .writer import Packed, pack

__all__ = ["Packed", "pack", "unpack"]
