"""Entry point of the plugin: options, the mark `recording`, the fixture `replay`, and what the end of a run shows.

pytest imports this module in every run, so it imports nothing but pytest and the standard library.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .fixture import ReplayFixture

MODES = ("none", "new", "accept")
FIXTURE = "replay"
UNSET = ("MESSAGER_STORE", "MESSAGER_REPLAY")
"""Variables of the environment that would let a live Messager record itself, or replay something else."""

_passed = pytest.StashKey[bool]()
"""True if the call of a test passed."""
_made = pytest.StashKey[list[dict[str, Any]]]()
"""Recording that a test made (see `file_changes.Change`)."""
_accepted = pytest.StashKey[list[dict[str, Any]]]()
"""Messages that a test accepts (see `taking_over.accepted`)."""
_collector = pytest.StashKey["_Collector"]()
"""Recordings that the tests of the run made, and messages that they accept."""
_items = pytest.StashKey[list[pytest.Item]]()
"""The collected tests, if unused recordings are to be listed."""
_used = pytest.StashKey[set[str]]()
"""Paths of the recordings that tests use."""
_folders = pytest.StashKey[set[str]]()
"""Folders of recordings beside the collected tests."""
_modules = pytest.StashKey[set[str]]()
"""Test files of which tests were collected."""
_WORKER = "messager_recordings"
"""Key of what a worker of pytest-xdist sends to the main process."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("messager", "recordings of agents (messager)")
    group.addoption(
        "--recording",
        choices=MODES,
        default="none",
        help="none (default): compare with the recording, and fail without one; "
        "new: also make the recordings that are missing; accept: take over what the agents say now",
    )
    group.addoption("--recording-unused", action="store_true", help="list the recordings that no collected test uses")
    group.addoption(
        "--recording-broker",
        metavar="URL",
        help="replay on this broker, in real time, instead of in memory and in virtual time",
    )


class _Collector:
    """Reports of the tests of a run about recordings, those of the workers of pytest-xdist too."""

    def __init__(self) -> None:
        self.changes: list[dict[str, Any]] = []
        self.accepted: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.changes += getattr(report, "messager_made", ())
        self.accepted += getattr(report, "messager_accepted", ())


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "recording(path=None, *, match=None, patience=30, seconds=None, broker=None): "
        "the recording that the fixture `replay` plays, and how messages are compared (messager)",
    )
    config.stash[_items] = []
    config.stash[_used] = set()
    config.stash[_folders] = set()
    config.stash[_modules] = set()
    config.stash[_collector] = _Collector()
    config.pluginmanager.register(config.stash[_collector], "messager_collector")


@pytest.fixture
def replay(request: pytest.FixtureRequest) -> Iterator[ReplayFixture]:
    """Play the recording of this test to live agents, and compare what they say with what they said.

    `replay(3, seller)` plays agent 3 by the async function `seller(messager)`; `replay({3: seller, 7: buyer})` several
    agents. In an async test: `await replay.play(3, seller)`.
    """
    from .fixture import ReplayFixture

    found = ReplayFixture(request.node, request.config)
    request.config.stash[_used].add(str(found.path))
    with pytest.MonkeyPatch.context() as patch:
        for name in UNSET:
            patch.delenv(name, raising=False)
        yield found
    if request.node.stash.get(_passed, False):
        request.node.stash[_made] = found.write_made()
        request.node.stash[_accepted] = found.accepted()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    """Fail a test that passes without a replay, as it compares nothing."""
    called = yield
    used = pyfuncitem.funcargs.get(FIXTURE)
    check = getattr(used, "check_that_it_was_called", None)  # a project may have another fixture of this name
    if check is not None:
        check()
    return called


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if call.when == "call":
        item.stash[_passed] = report.passed
    elif call.when == "teardown":  # pytest-xdist sends attributes to the main process
        if made := item.stash.get(_made, None):
            report.messager_made = made
        if accepted := item.stash.get(_accepted, None):
            report.messager_accepted = accepted
    return report


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.config.getoption("recording_unused"):
        item.config.stash[_items].append(item)


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if config.getoption("recording_unused"):
        from . import file_changes

        items = config.stash[_items]
        used, folders = file_changes.used_by(items, FIXTURE, config.rootpath)
        config.stash[_used] |= used
        config.stash[_folders] |= folders
        config.stash[_modules] |= {str(item.path) for item in items}
    output = getattr(config, "workeroutput", None)
    if output is not None:
        found: list[set[str]] = [config.stash[_used], config.stash[_folders], config.stash[_modules]]
        output[_WORKER] = [sorted(one) for one in found]
    elif config.stash[_collector].accepted:
        _take_over(session, config.stash[_collector])


def _take_over(session: pytest.Session, collector: _Collector) -> None:
    """Rewrite the recordings for which tests accept something; what is refused is an error of these tests."""
    from . import taking_over

    changes, refused = taking_over.take_over(collector.accepted, Path(session.config.invocation_params.dir))
    collector.changes += [change.to_dict() for change in changes]
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if refused and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    for tests, text in refused:
        for test in tests if reporter is not None else ():
            file, _, name = test.partition("::")
            place = file, None, name.replace("::", ".")
            report = pytest.TestReport(test, place, {}, "failed", text, "teardown")
            reporter.stats.setdefault("error", []).append(report)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    """Take over what a worker of pytest-xdist found."""
    found = getattr(node, "workeroutput", {}).get(_WORKER, ((), (), ()))
    for key, values in zip((_used, _folders, _modules), found, strict=True):
        node.config.stash[key].update(values)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    changes = config.stash[_collector].changes
    if not changes and not config.getoption("recording_unused"):
        return
    from . import file_changes

    base = Path(config.invocation_params.dir)
    if changes:
        terminalreporter.section("recordings changed")
        for line in file_changes.lines(changes, base):
            terminalreporter.line(line)
    if config.getoption("recording_unused"):
        terminalreporter.section("unused recordings")
        used, folders, modules = (config.stash[key] for key in (_used, _folders, _modules))
        patterns, named = config.getini("python_files"), [arg for arg in config.args if "::" in arg]
        for line in file_changes.unused_lines(used, folders, base, modules, patterns, named):
            terminalreporter.line(line)
