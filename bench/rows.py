"""The rows of the bench: what is measured, what it is compared with, and the target."""

from __future__ import annotations

from dataclasses import dataclass

LARGE = 10_000_000
"""Default number of events in the large store."""
SOCIETY = 400_000
"""Default number of events in the store of the rows about analysis: its projection takes longer than recording."""


@dataclass(frozen=True)
class Row:
    """One row: the ratio of one figure of two sides, ours divided by theirs."""

    name: str
    what: str
    against: str
    pair: str
    """Module and class of the two sides (see `bench.measure.Pair`); several rows can share one."""
    target: float | None
    """Target of the median ratio; None for a figure that is only reported."""
    value: str = "rate"
    """The figure of the pair."""
    unit: str = "per second"
    """The unit of both sides' absolute figures."""
    at_most: bool = False
    """True if the ratio must be at most the target, instead of at least."""
    ceiling: float | None = None
    """Upper limit of our absolute figure, in addition to the ratio."""
    max_rounds: int | None = None
    """Maximum number of rounds, for rows that take minutes."""
    needs: str | None = None
    """The peer to install, if any."""

    @property
    def target_text(self) -> str:
        """The target as text."""
        if self.target is None:
            return "-"
        bound = f"{'<=' if self.at_most else '>='} {self.target:g}"
        return bound if self.ceiling is None else f"{bound}, < {self.ceiling:g} {self.unit}"

    def met(self, ratio: float, ours: float) -> bool | None:
        """Return whether the target is met; None without a target."""
        if self.target is None:
            return None
        reached = ratio <= self.target if self.at_most else ratio >= self.target
        return reached and (self.ceiling is None or ours < self.ceiling)


def _startup(name: str, what: str, against: str, pair: str) -> Row:
    return Row(name, what, against, f"startup:{pair}", 1.3, "time", "s", at_most=True)


def _scale(name: str, what: str) -> Row:
    against = "the same at 100 thousand events"
    return Row(f"scale-{name}", what, against, "scale:Sizes", 2.0, name, "s", at_most=True, max_rounds=3)


def _memory(name: str, what: str, pair: str) -> Row:
    against = "the same for 100 thousand events"
    return Row(f"memory-{name}", what, against, f"memory:{pair}", 1.2, "peak", "MB", True, 200.0, max_rounds=1)


def _walk(name: str, what: str, against: str, pair: str, target: float) -> Row:
    return Row(name, what, against, f"walking:{pair}", target, unit="events per second")


def _question(name: str, what: str) -> Row:
    against = "SQL by hand in DuckDB on the same parts"
    return Row(f"analysis-{name}", what, against, "analysis:Questions", 1.5, name, "s", at_most=True)


def _first(name: str, what: str, target: float, unit: str, ceiling: float) -> Row:
    against = "some columns of the log copied to Parquet by hand"
    return Row(f"analysis-{name}", what, against, "analysis:First", target, name, unit, True, ceiling, 1)


def _page(name: str, what: str, against: str, target: float, unit: str, ceiling: float) -> Row:
    what = f"a report of 225,671 messages in headless Chromium: {what}"
    return Row(f"page-{name}", what, against, "pages:Report", target, name, unit, True, ceiling, 3, "playwright")


_PEER = "AgentSociety 1.3.7's Messager, which keeps a list in memory"
_MQTT_PEER = "AgentSociety 1.0.0's Messager (MQTT), which keeps a list in memory"

ROWS = (
    Row(
        "together-peer",
        "concurrent sends (1000 in flight), recording on, buffered",
        _PEER,
        "sends:TogetherAgainstPeer",
        8.0,
        needs="agentsociety",
    ),
    Row(
        "alone-peer",
        "sends one after another, recording on, buffered",
        _PEER,
        "sends:AloneAgainstPeer",
        1.3,
        needs="agentsociety",
    ),
    Row("sends-alone", "sends one after another, recording on", "recording off", "sends:Alone", 0.95),
    Row("sends-together", "concurrent sends (1000 in flight), recording on", "recording off", "sends:Together", 0.85),
    Row(
        "mqtt-together-peer",
        "concurrent sends over MQTT (1000 in flight, QoS 1), recording on, buffered",
        _MQTT_PEER,
        "mqtt:Together",
        1.2,
        needs="agentsociety-mqtt",
    ),
    Row(
        "mqtt-alone-peer",
        "sends over MQTT one after another (QoS 1), recording on, buffered",
        _MQTT_PEER,
        "mqtt:Alone",
        1.0,
        needs="agentsociety-mqtt",
    ),
    Row(
        "recording-cpu",
        "CPU that recording adds to one send, including its commit",
        "CPU of one row of sqlite3 executemany, including its tuple",
        "sends:RecordingCPU",
        1.5,
        "cpu",
        "us",
        at_most=True,
    ),
    Row("strict", "sends in strict, 1000 in flight", "the same, buffered", "sends:Strict", 0.6),
    Row(
        "receive",
        "a listening Messager with a Recorder, until everything is fetched",
        "redis-py pubsub.listen() that only counts",
        "receiving:Receive",
        0.5,
    ),
    Row(
        "append",
        "append to SQLite, 5000 a batch, with digests and counters",
        "sqlite3 executemany of the same columns and index, WAL, synchronous FULL",
        "appending:Executemany",
        0.75,
    ),
    Row(
        "append-eventsourcing",
        "append to SQLite, 5000 a batch, with digests and counters",
        "eventsourcing 9.5.6, the best of its SQLite recorders and batches, synchronous FULL",
        "appending:Eventsourcing",
        1.0,
        needs="eventsourcing",
    ),
    Row(
        "postgres-append",
        "append to PostgreSQL, 5000 a batch, one recorder",
        "asyncpg COPY of the same columns into the same table and index",
        "postgres:Copy",
        0.75,
    ),
    Row(
        "postgres-eventsourcing",
        "append to PostgreSQL, 5000 a batch, one recorder",
        "eventsourcing 9.5.6, the best of its PostgreSQL recorders and batches",
        "postgres:Eventsourcing",
        3.0,
        needs="eventsourcing-postgres",
    ),
    Row(
        "postgres-recorders",
        "16 recorders at once append to PostgreSQL, 20 events a batch, 1 ms added per round trip",
        "one recorder, the same",
        "postgres:Recorders",
        4.0,
    ),
    Row(
        "replay",
        "replay at full speed from SQLite to Redis, with a redis-py subscriber",
        "redis-py pipelines of 1000 PUBLISH from a list in memory, same subscriber",
        "replaying:FullSpeed",
        1.0,
    ),
    Row(
        "lockstep",
        "request-reply of two live agents that follow the recorded schedule, in memory",
        "the same two without gates",
        "live:DialogueInMemory",
        0.7,
    ),
    Row(
        "lockstep-redis",
        "request-reply of two live agents that follow the recorded schedule, over Redis",
        "the same two without gates",
        "live:DialogueOverRedis",
        0.7,
    ),
    Row(
        "lockstep-redis-awake",
        "the same over Redis, in an event loop that never sleeps",
        "the same two without gates",
        "live:DialogueAwake",
        0.7,
    ),
    Row(
        "live-agent",
        "one live agent among 100 recorded ones, in memory and in virtual time, with reading the log",
        "the tape at full speed, in memory",
        "live:OneAmongMany",
        0.2,
    ),
    Row(
        "plugin",
        "processor time that a test with a recording adds to a run of pytest",
        "a run of pytest with an empty test",
        "live:PluginTest",
        1.0,
        "time",
        "s",
        at_most=True,
        ceiling=0.2,
    ),
    Row(
        "read",
        "read into events in replay order",
        "a raw sqlite3 cursor: same columns and order, pages by fetchmany",
        "reading:Cursor",
        0.6,
    ),
    Row(
        "read-rosbags",
        "read of a recording",
        "rosbags 0.11.9: raw messages of its SQLite bag of the same messages",
        "reading:Rosbags",
        1.5,
        needs="rosbags",
    ),
    Row(
        "read-rosbags-text",
        "read of a recording, with the text of each message",
        "rosbags 0.11.9: its SQLite bag of the same messages, deserialised",
        "reading:RosbagsText",
        1.5,
        needs="rosbags",
    ),
    Row(
        "table",
        "a million events with a projection as record batches of pyarrow, with names and texts",
        "a raw sqlite3 cursor over the event table, pages by fetchmany",
        "tables:Cursor",
        1.0,
        unit="events per second",
    ),
    Row(
        "table-rosbags",
        "the same",
        "rosbags 0.11.9: raw messages of its SQLite bag of the same messages",
        "tables:Rosbags",
        1.3,
        needs="rosbags",
    ),
    Row(
        "table-rosbags-text",
        "the same",
        "rosbags 0.11.9: its SQLite bag of the same messages, deserialised",
        "tables:RosbagsText",
        2.0,
        needs="rosbags",
    ),
    _walk("verify", "verify, batches of 1000", "a loop that reads the rows and hashes them", "Verify", 0.5),
    _walk("verify-small", "verify, batches of 20", "a loop that reads the rows and hashes them", "VerifySmall", 0.5),
    _walk(
        "diff", "diff of two equal experiments", "a loop that reads both and compares digests by channel", "Diff", 0.5
    ),
    Row(
        "diff-unlike",
        "diff of two runs of 200 thousand messages of which one percent differs",
        "verify of both",
        "aligning:Unlike",
        2.0,
        "time",
        "s",
        at_most=True,
    ),
    _walk("pack", "pack", "a loop that hashes the rows, writes lines and hashes them", "Pack", 0.5),
    _walk("unpack", "unpack", "a loop that parses lines, hashes and inserts them, one index", "Unpack", 0.7),
    _walk("import", "import of JSON Lines", "a loop that parses lines and inserts them, one index", "Import", 0.7),
    _walk("export", "export to JSON Lines", "a loop that reads the rows and writes lines", "Export", 0.7),
    _walk("events", "events --json", "a loop that reads the rows and writes lines", "Events", 0.7),
    Row(
        "lag",
        "replay at 1000 messages per second, recorded pace, 10 s: p99 lag",
        "the same messages with one asyncio.sleep per gap",
        "replaying:Pace",
        0.01,
        "p99",
        "ms",
        at_most=True,
        max_rounds=3,
    ),
    Row(
        "drift",
        "the same: mean lag of the last tenth minus that of the first",
        "the same messages with one asyncio.sleep per gap",
        "replaying:Pace",
        0.005,
        "drift",
        "ms",
        at_most=True,
        max_rounds=3,
    ),
    Row(
        "scale-append",
        "append at 10 million events",
        "the same at 100 thousand events",
        "scale:Sizes",
        0.9,
        "append",
        max_rounds=3,
    ),
    _scale("open", "opening a store of 10 million events"),
    _scale("ls", "messager ls at 10 million events, without the start of Python"),
    _scale("info", "messager info at 10 million events, without the start of Python"),
    _scale("page", "a page of 100 events of one channel at 10 million events"),
    _question("page", "a page of 100 events of one agent on one channel, in the middle of a society"),
    _question("conversation", "all messages between two of its agents"),
    _question("count", "its messages by sender and recipient"),
    _question("grep", "its events in whose text a rare word was said"),
    _question("grep-frequent", "the first 1,000 events with a frequent word"),
    _question("delays", "the percentiles of its delivery times by pair"),
    _question("replies", "the times from a message to its reply by pair"),
    _question("problems", "its messages that did not arrive, or not everywhere"),
    _question("table", "all its events as a table of pyarrow"),
    _first("first", "its messages by sender, without a projection", 10.0, "s", 10.0),
    _first("disk", "the projection, for a message", 3.0, "bytes", 60.0),
    _memory("record", "peak memory while recording 10 million events", "Record"),
    _memory("replay", "peak memory while replaying 10 million events", "ReplayMemory"),
    _memory("export", "peak memory while exporting 10 million events", "Export"),
    _startup("startup-cli", "messager --help", "python -c 'import click'", "CommandLine"),
    _startup("startup-import", "import messager", "import redis.asyncio, pydantic", "Import"),
    _page("ready", "opened until drawn", "a plain HTML table of the same messages", 1.0, "s", 2.0),
    _page("search", "a letter until the painted result", "a loop over an array of lower-case texts", 2.0, "ms", 100.0),
    _page("scroll", "a frame while scrolling", "an empty page", 1.2, "ms", 20.0),
    _page("brush", "a frame while dragging over the timeline", "an empty page", 1.2, "ms", 20.0),
    _page("memory", "memory of its process", "a plain HTML table of the same messages", 1.0, "MB", 500.0),
    Row(
        "page-whole",
        "the served page of 200,000 messages in headless Chromium: opened until all are there and drawn",
        "a plain HTML table of the same messages and counts by minute, by hand-written SQL",
        "large_page:WholePage",
        1.0,
        "ready",
        "s",
        at_most=True,
        ceiling=1.5,
        max_rounds=3,
        needs="playwright",
    ),
    Row(
        "page-large",
        "the served page of a million events in headless Chromium: opened until messages and timeline are drawn",
        "a plain HTML table of its first messages and counts by minute, by hand-written SQL",
        "large_page:LargePage",
        3.0,
        "ready",
        "s",
        at_most=True,
        ceiling=2.0,
        max_rounds=3,
        needs="playwright",
    ),
    Row(
        "page-follow",
        "messages that the served page shows, of 2,000 a second for ten minutes",
        "messages that a hand-written query finds meanwhile",
        "followed_page:FollowedPage",
        0.98,
        "rate",
        max_rounds=1,
        needs="playwright",
    ),
    Row(
        "disk",
        "bytes on disk per event",
        "bytes of its payload",
        "appending:Disk",
        None,
        "bytes",
        "bytes",
        at_most=True,
        max_rounds=1,
    ),
)

NAMES = tuple(row.name for row in ROWS)
