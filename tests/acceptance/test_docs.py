"""Documents are correct: help pages are current, examples run, commands and files exist."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from messager.testing import MqttServer, RedisServer
from messager_store.cli.verbs import VERBS
from messager_store.recording.state import State as RecorderState
from messager_store.replay import ReplayState
from tests.support import ROOT, messager

AT_ROOT = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
PAGES = [*(ROOT / name for name in AT_ROOT), *sorted((ROOT / "docs").glob("*.md"))]
TEXT = {path.name: path.read_text() for path in PAGES}


def program(name: str) -> Any:
    """Load a program of the folder docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_command_line_page_is_what_the_commands_say() -> None:
    assert TEXT["cli.md"] == program("generate").page(), "run `python docs/generate.py`"


def words(svg: str) -> list[str]:
    """Return the words of a picture, without times, ids and measured values."""
    text = re.sub(r"<[^>]*>|&#160;", " ", svg.partition("<g ")[2])
    return [word for word in text.split() if not re.search(r"[0-9]", word) and word not in ("ms", "s")]


def test_the_pictures_show_what_the_commands_print() -> None:
    pictures = program("pictures")
    folder = ROOT / "docs" / "pictures"
    assert (folder / "overview.svg").read_text() == pictures.overview(), "run `make pictures`"
    shown = words((folder / "session.svg").read_text())
    assert len(shown) > 100 and shown == words(pictures.session()), "run `make pictures`"


def test_paths_on_the_architecture_page_exist() -> None:
    paths = re.findall(r"`((?:messager|store|migrations|tests|bench|docs)/[\w./-]*)`", TEXT["architecture.md"])
    assert len(paths) > 30
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_states_on_the_architecture_page_are_those_of_the_code() -> None:
    drawn = re.findall(r"\b[A-Z]{3,}\b", " ".join(fenced("architecture.md", "text")[-2:]))
    assert {*drawn, "STOPPED"} == {*RecorderState.__members__, *ReplayState.__members__}


@pytest.mark.parametrize("page", TEXT)
def test_links_lead_to_files_that_are_there(page: str) -> None:
    folder = ROOT if page in AT_ROOT else ROOT / "docs"
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", TEXT[page]):
        assert (folder / target).exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)", TEXT[Path(target).name or page], re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in headings], anchor


def fenced(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT[page], re.DOTALL)


def seeded(folder: Path) -> None:
    """Store with the experiments of the examples in the documents."""
    lines = [
        {"ts": 1, "kind": "mark", "meta": {"name": "step", "fields": {"number": 1}}},
        {"ts": 2, "channel": "exps:exp-1:agents:7:agent-chat", "from_id": 3, "to_id": 7, "payload": {"content": "hi"}},
    ]
    (folder / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = messager("import", "a.jsonl", "--exp", "exp-1", "--tag", "baseline", cwd=folder)
    assert done.returncode == 0, done.stderr


PROGRAMS = [
    (page, at)
    for page in TEXT
    for at, code in enumerate(fenced(page, "python"))
    if "asyncio.run" in code and "def test_" not in code
]


@pytest.mark.parametrize(("page", "at"), PROGRAMS)
def test_programs_in_the_documents_run(
    page: str, at: int, tmp_path: Path, redis: RedisServer, mqtt: MqttServer
) -> None:
    code = fenced(page, "python")[at].replace('server="localhost"', f'server="127.0.0.1", port={redis.port}')
    code = code.replace('Messager("localhost"', f'Messager("127.0.0.1", {mqtt.port}')
    if "create=False" in code:
        seeded(tmp_path)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    if "Recorder" in code:
        rows = json.loads(messager("info", "exp-1", "--json", cwd=tmp_path).stdout)
        assert rows["kinds"]["sent"] == 2 and rows["kinds"]["received"] == 1 and rows["kinds"]["mark"] == 1


LATE = """
            async def nothing() -> None:
                pass

            async def answer_again() -> None:
                await asyncio.sleep(0.2)
                await messager.send_message(messager.get_agent_chat_channel(asked["from"]), answer, 3, asked["from"])

            {}
"""
ANSWERED = """await messager.send_message(messager.get_agent_chat_channel(asked["from"]), answer, 3, asked["from"])
"""


def said(at: int, who: int, to: int, **payload: str) -> dict[str, object]:
    channel = f"exps:g:agents:{to}:agent-chat"
    return {"ts": at, "channel": channel, "from_id": who, "to_id": to, "payload": {"from": who, **payload}}


def golden(folder: Path, *lines: dict[str, object]) -> None:
    """Recording that the test in the documents reads."""
    (folder / "golden.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def run_example(folder: Path, *changes: tuple[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the test in the documents with these parts of its text replaced."""
    [program] = fenced("testing.md", "python")
    for old, new in changes:
        assert old in program
        program = program.replace(old, new)
    (folder / "test_seller.py").write_text(program)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "test_seller.py"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.fixture
def sold(tmp_path: Path) -> Path:
    """Folder with a recording of the seller."""
    talk = [(1, 3, "apple"), (3, 1, "apple: 2"), (2, 3, "pear"), (3, 2, "pear: 3"), (1, 2, "cheap!")]
    golden(tmp_path, *(said(at, who, to, content=text) for at, (who, to, text) in enumerate(talk)))
    return tmp_path


def test_the_test_in_the_documents_passes_for_an_agent_that_answers_as_it_did(sold: Path) -> None:
    done = run_example(sold)
    assert done.returncode == 0, done.stdout


def test_the_test_in_the_documents_fails_for_another_answer(sold: Path) -> None:
    done = run_example(sold, ('"pear": 3', '"pear": 4'))
    assert done.returncode == 1 and "pear: 4" in done.stdout


def test_the_test_in_the_documents_fails_with_the_exception_of_the_agent(sold: Path) -> None:
    done = run_example(sold, ('"pear": 3', '"plum": 3'))
    assert done.returncode == 1 and "KeyError: 'pear'" in done.stdout, done.stdout


def test_the_test_in_the_documents_fails_with_the_exception_of_a_task_that_the_agent_started(sold: Path) -> None:
    fails = """
            async def fails() -> None:
                raise KeyError("in a task")

            asyncio.create_task(fails())
"""
    done = run_example(sold, (ANSWERED, ANSWERED + fails))
    assert done.returncode == 1 and "KeyError('in a task')" in done.stdout, done.stdout


@pytest.mark.parametrize(
    "how",
    [
        "await answer_again()",
        "late = asyncio.create_task(answer_again())",
        # ends in its first step: its callback has run before the agent or the test can run again
        "asyncio.create_task(nothing()).add_done_callback(lambda _: asyncio.create_task(answer_again()))",
    ],
)
def test_the_test_in_the_documents_fails_for_an_extra_answer_that_comes_late(how: str, sold: Path) -> None:
    done = run_example(sold, (ANSWERED, ANSWERED + LATE.format(how)))
    assert done.returncode == 1 and "golden: 2 messages, again: 4 me" in done.stdout, done.stdout


def test_what_differs_each_time_is_blanked_where_it_is_compared_and_not_where_the_agent_hears_it(
    tmp_path: Path,
) -> None:
    golden(tmp_path, said(1, 1, 3, content="apple", id="q1"), said(2, 3, 1, content="q1 apple: 2", id="an old id"))
    agent = (
        """{"from": 3, "content": f"{asked['content']}: {PRICES[asked['content']]}"}""",
        """{"from": 3, "content": f"{asked['id']} {asked['content']}: {PRICES[asked['content']]}", "id": "a new id"}""",
    )
    changes = [
        agent,
        ('Recorder(log, "again")', 'Recorder(log, "again", redact=redactor("id"))'),
        ('"golden", "again", selection', '"expected", "again", selection'),
        (
            '        await import_jsonl(log, golden, "golden")\n',
            '        await import_jsonl(log, golden, "golden")\n'
            '        await import_jsonl(log, "expected.jsonl", "expected")\n',
        ),
        ("import asyncio\n", "import asyncio\nfrom messager_store import redactor\n"),
    ]
    for line in (
        'redactor("id")',
        'import_jsonl(log, "expected.jsonl", "expected")',
        'compare(log, "expected", "again"',
    ):
        assert line in TEXT["testing.md"]
    assert messager("import", "golden.jsonl", "--exp", "exp-1", cwd=tmp_path).returncode == 0
    for words in commands("testing.md"):
        if words[1] == "export":
            assert messager(*words[1:], cwd=tmp_path).returncode == 0
    assert run_example(tmp_path, agent).returncode == 1  # the ids differ
    done = run_example(tmp_path, *changes)
    assert done.returncode == 0, done.stdout
    (tmp_path / "expected.jsonl").replace(tmp_path / "golden.jsonl")
    assert "[redacted] apple: 2" in run_example(tmp_path, agent).stdout  # the agent has heard what is blanked


def test_there_are_programs_to_run() -> None:
    assert len(PROGRAMS) >= 3


def test_sql_in_the_documents_runs(tmp_path: Path) -> None:
    seeded(tmp_path)
    with sqlite3.connect(tmp_path / "messager.db") as connection:
        statements = [line for block in fenced("querying.md", "sql") for line in block.splitlines() if line]
        results = [connection.execute(statement).fetchall() for statement in statements]
    connection.close()
    assert (results[0], results[3], len(results)) == ([(3, 7, 1)], [(3, 2)], 7)


def commands(page: str) -> list[list[str]]:
    found = re.findall(r"^ {4,}(messager .*?)$", TEXT[page], re.MULTILINE)
    return [shlex.split(re.sub(r"\s+#.*|\s*&\s*|\|.*", "", line)) for line in found]


def test_commands_in_the_readme_are_ones_that_there_are(tmp_path: Path, redis: RedisServer) -> None:
    """Run the commands that only read; check verb and options of the others against the help."""
    seeded(tmp_path)
    for words in commands("README.md"):
        verb = words[1]
        assert verb in VERBS, words
        helped = messager(verb, "--help", cwd=tmp_path).stdout
        for option in (word for word in words[2:] if word.startswith("-")):
            assert re.search(rf"{re.escape(option)}\b", helped), (words, option)
        if verb in ("ls", "info", "events") and "--follow" not in words:
            done = messager(*words[1:], cwd=tmp_path)
            assert done.returncode == 0, (words, done.stderr)
        if verb == "replay" and "--dry-run" in words:
            assert messager(*words[1:], "--redis", redis.url, cwd=tmp_path).returncode == 0
    assert len(commands("README.md")) > 10


def test_the_make_targets_the_readme_names_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^    make ([a-z]+)", TEXT["README.md"] + TEXT["performance.md"], re.MULTILINE)
    assert {"demo", "test", "bench"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
