"""Draw the pictures of README.md: `docs/pictures/overview.svg` and `docs/pictures/session.svg`.

    python docs/pictures.py            # or: make pictures

`session.svg` shows real commands of this project. They run in a temporary folder, against a Redis server that this
program starts and stops. A second run changes times, ids and measured values, and nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from messager import redis_server

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 92

RECORD = "messager record 'exps:again:*' --exp again"
SESSION = (
    ("", "python examples/market.py monday", "three agents; MESSAGER_STORE records them"),
    ("", "messager events monday --kind sent", ""),
    ("record", f"{RECORD} &", ""),
    ("", "messager replay monday --to-exp again --speed 10 --wait-for-subscribers 1", ""),
    ("stop", "kill %1", ""),
    ("", "messager diff monday again --to-exp again", "the same messages?"),
    ("", "python examples/market.py tuesday --pear 4", "the seller has changed"),
    ("", "messager diff monday tuesday --to-exp tuesday", ""),
)
"""Job ("record" starts the background job, "stop" ends it, "" runs in the foreground), command, and comment."""

# Without the web font of rich's own template: a picture must not load anything.
_FORMAT = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: {char_height}px;
  line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def session() -> str:
    """Run the commands and return the terminal session as SVG. Raises `RuntimeError` for a command that fails."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    with tempfile.TemporaryDirectory() as folder, redis_server() as server:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MESSAGER_")},
            "COLUMNS": str(COLUMNS),
            "MESSAGER_BROKER": server.url,
            "MESSAGER_STORE": "messager.db",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "TERM": "xterm-256color",
        }
        environment.pop("NO_COLOR", None)
        with contextlib.ExitStack() as stack:
            recorder = None
            for job, command, comment in SESSION:
                console.print(
                    Text.assemble(
                        ("$ ", "bold green"), (command, "bold"), (f"   # {comment}" if comment else "", "dim")
                    )
                )
                if job == "record":
                    recorder = stack.enter_context(_recording(folder, environment))
                elif job == "stop":
                    assert recorder is not None
                    recorder.send_signal(signal.SIGTERM)
                    recorder.wait(30)
                else:
                    output = _run(command, folder, environment)
                    if output:
                        console.print(Text.from_ansi(output))
    return console.export_svg(title="messager", code_format=_FORMAT, unique_id="session")


@contextlib.contextmanager
def _recording(folder: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run the tap; the context begins when it listens."""
    process = subprocess.Popen(
        shlex.split(RECORD),
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        process.stderr.readline()
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _run(command: str, folder: str, environment: dict[str, str]) -> str:
    """Run a command with a terminal as its standard output, and return what it printed there."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    process = subprocess.Popen(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=subprocess.PIPE,
    )
    os.close(terminal)
    output = b""
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while data := os.read(controller, 65536):
            output += data
    os.close(controller)
    _, errors = process.communicate()
    if process.returncode not in (0, 1) or b"Traceback" in errors:
        raise RuntimeError(f"{command} ended with {process.returncode}: {errors.decode()}")
    return output.decode().replace("\r\n", "\n").strip("\n")


_BOXES = (
    (20, 20, 200, 74, "Agents", ("AgentSociety, AgentScope,", "your own programs")),
    (280, 20, 180, 74, "Messager", ("send_message,", "fetch_messages")),
    (520, 20, 200, 74, "Broker", ("Redis, MQTT,", "or in memory")),
    (
        20,
        160,
        700,
        74,
        "Event log",
        ("SQLite or PostgreSQL: append-only, hash-chained,", "an event for each message sent and each one received"),
    ),
    (20, 290, 220, 74, "Reproduce", ("replay a past experiment", "onto the broker, in order")),
    (260, 290, 220, 74, "Analyse", ("filters, SQL views, diff,", "export")),
    (500, 290, 220, 74, "Test", ("replay recorded traffic to an", "agent and check its answers")),
)
"""Left, top, width, height (px), title and text."""
_ARROWS = (
    ((220, 57), (280, 57), True, ""),
    ((460, 57), (520, 57), True, ""),
    ((370, 94), (370, 160), False, "log hook (Recorder)"),
    ((560, 94), (560, 160), False, "tap (messager record)"),
    ((130, 234), (130, 290), False, ""),
    ((370, 234), (370, 290), False, ""),
    ((610, 234), (610, 290), False, ""),
)
"""Start, end, and whether the arrow has two heads; the label stands right of its middle."""


def overview() -> str:
    """Return the drawing of what the project does, as SVG."""
    parts = []
    for (x1, y1), (x2, y2), both, label in _ARROWS:
        start = ' marker-start="url(#head)"' if both else ""
        parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"{start} marker-end="url(#head)"/>')
        if label:
            parts.append(f'<text x="{(x1 + x2) // 2 + 8}" y="{(y1 + y2) // 2 + 4}">{label}</text>')
    for left, top, width, height, title, lines in _BOXES:
        middle = left + width // 2
        parts.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8"/>')
        parts.append(f'<text class="title" x="{middle}" y="{top + 24}">{title}</text>')
        for number, line in enumerate(lines):
            parts.append(f'<text class="line" x="{middle}" y="{top + 44 + 17 * number}">{line}</text>')
    return _OVERVIEW.format("\n".join(parts))


_OVERVIEW = """<svg viewBox="0 0 740 384" xmlns="http://www.w3.org/2000/svg">
<title>Agents talk through a Messager and a broker; an event log serves replay, analysis and tests</title>
<style>
text {{ font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #57606a; }}
.title {{ font-size: 15px; font-weight: 600; fill: #1f2328; text-anchor: middle; }}
.line {{ text-anchor: middle; }}
rect {{ fill: #ffffff; stroke: #6e7781; stroke-width: 1.2; }}
line {{ stroke: #6e7781; stroke-width: 1.5; }}
</style>
<defs><marker id="head" viewBox="0 0 8 8"
  refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse">
<path d="M0,0 L8,4 L0,8 z" fill="#6e7781"/></marker></defs>
<rect x="0" y="0" width="740" height="384" rx="10" style="fill: #f6f8fa; stroke: none"/>
{}
</svg>
"""


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "overview.svg").write_text(overview())
    (PICTURES / "session.svg").write_text(session())


if __name__ == "__main__":
    main()
