"""The documents are true: help pages are current, examples run, commands and files exist."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from messager.testing import MqttServer, RedisServer
from messager_store.cli import HELP
from tests.support import ROOT, messager

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = {path.name: path.read_text() for path in PAGES}


def test_the_command_line_page_is_what_the_commands_say() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert TEXT["cli.md"] == module.page(), "run `python docs/generate.py`"


@pytest.mark.parametrize("page", TEXT)
def test_links_lead_to_files_that_are_there(page: str) -> None:
    folder = ROOT if page in ("README.md", "CHANGELOG.md") else ROOT / "docs"
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT[page]):
        assert (folder / target).exists(), target


def fenced(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT[page], re.DOTALL)


def seeded(folder: Path) -> None:
    """A store in which the documents' examples find something."""
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


@pytest.mark.parametrize(("price", "code"), [("3", 0), ("4", 1)])
def test_the_test_in_the_documents_passes_and_fails_as_the_agent_does(price: str, code: int, tmp_path: Path) -> None:
    [program] = fenced("testing.md", "python")
    (tmp_path / "test_seller.py").write_text(program.replace('"pear": 3', f'"pear": {price}'))
    said = [(1, 3, "apple"), (3, 1, "apple: 2"), (2, 3, "pear"), (3, 2, "pear: 3"), (1, 2, "cheap!")]
    lines = [
        {
            "ts": at,
            "channel": f"exps:g:agents:{to}:agent-chat",
            "from_id": who,
            "to_id": to,
            "payload": {"from": who, "content": text},
        }
        for at, (who, to, text) in enumerate(said)
    ]
    (tmp_path / "golden.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "test_seller.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout


def test_there_are_programs_to_run() -> None:
    assert len(PROGRAMS) >= 3


def test_sql_in_the_documents_runs(tmp_path: Path) -> None:
    seeded(tmp_path)
    with sqlite3.connect(tmp_path / "messager.db") as connection:
        statements = [line for block in fenced("asking.md", "sql") for line in block.splitlines() if line]
        results = [connection.execute(statement).fetchall() for statement in statements]
    connection.close()
    assert (results[0], results[3], len(results)) == ([(3, 7, 1)], [(3, 2)], 4)


def commands(page: str) -> list[list[str]]:
    found = re.findall(r"^    (messager .*?)$", TEXT[page], re.MULTILINE)
    return [shlex.split(re.sub(r"\s+#.*|\s*&\s*|\|.*", "", line)) for line in found]


def test_commands_in_the_readme_are_ones_that_there_are(tmp_path: Path, redis: RedisServer) -> None:
    """Those that only read are run; of the others, verb and options are checked against the help."""
    seeded(tmp_path)
    for words in commands("README.md"):
        verb = words[1]
        assert verb in HELP, words
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
