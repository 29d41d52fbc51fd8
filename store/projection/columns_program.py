"""Program that makes columns of events, while the process that has started it decides about them.

Requests and answers are a length in eight bytes, and then data. The first request has the arguments of `Names`, in the
format of `marshal`, and is answered with the file of `schema`: another version would make other columns. Each of the
others has those of `read`, and is answered with an Arrow stream. It ends when standard input is closed.
"""

from __future__ import annotations

import marshal
import os
import sys

import pyarrow as pa

from messager_store.projection import schema


def main() -> None:
    names: schema.Names | None = None
    while size := sys.stdin.buffer.read(8):
        request = marshal.loads(sys.stdin.buffer.read(int.from_bytes(size, "big")))
        if names is None:
            names = schema.Names("", (), *request)
            answer = os.fsencode(schema.__file__)
        else:
            rows, labels = request
            table = schema.read(rows, labels, names)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            answer = sink.getvalue()
        sys.stdout.buffer.write(len(answer).to_bytes(8, "big"))
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
