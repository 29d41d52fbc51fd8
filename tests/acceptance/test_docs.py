"""Documents are correct: help pages are current, examples run, commands and files exist."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import shlex
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from messager.testing import MqttServer, RedisServer
from messager_store.recording.state import State as RecorderState
from messager_store.replay import ReplayState
from tests.support import ROOT, asked, forks, messager
from tests.support.forked_program import ForkedProgram

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


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store of examples/town.py."""
    folder = tmp_path_factory.mktemp("town")
    subprocess.run([sys.executable, ROOT / "examples" / "town.py", "town.db"], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("page", program("examples").PAGES)
def test_examples_print_what_the_page_shows(page: str, town: Path) -> None:
    examples = program("examples")

    def run(command: str, folder: Path, environment: dict[str, str]) -> Any:
        """Run verbs without a shell, which is faster."""
        if not command.startswith("messager ") or re.search(r"[|&;<>\n]", command):
            return examples.in_shell(command, folder, environment)
        return messager(*shlex.split(command)[1:], cwd=folder, env=environment)

    assert TEXT[page] == examples.current(page, town, run), "run `python docs/examples.py`"


@pytest.mark.nightly
def test_the_notebook_goes_from_a_store_to_its_findings_in_under_30_lines(town: Path) -> None:
    import nbformat

    examples = program("examples")
    cells = nbformat.read(examples.NOTEBOOK, as_version=4).cells
    assert sum(len(cell.source.splitlines()) for cell in cells if cell.cell_type == "code") < 30
    assert outputs(cells) == outputs(examples.notebook(town).cells), "run `python docs/examples.py`"


def outputs(cells: list[Any]) -> list[list[str]]:
    """Return the words and numbers of the text of each output, without types of pandas."""
    shown = [each["data"]["text/plain"] for cell in cells for each in cell.get("outputs", ())]
    assert len(shown) > 5
    return [re.findall(r"[\w.]+", re.sub(r"dtype: .*", "", text)) for text in shown]


def words(svg: str) -> list[str]:
    """Return the words of a picture, without times, ids and measured values."""
    text = re.sub(r"<[^>]*>|&#160;", " ", svg.partition("<g ")[2])
    return [word for word in text.split() if not re.search(r"[0-9]", word) and word not in ("ms", "s")]


@pytest.mark.nightly
def test_the_pictures_show_what_the_commands_print() -> None:
    pictures = program("pictures")
    folder = ROOT / "docs" / "pictures"
    assert (folder / "overview.svg").read_text() == pictures.overview(), "run `make pictures`"
    shown = words((folder / "session.svg").read_text())
    assert len(shown) > 100 and shown == words(pictures.session()), "run `make pictures`"


def test_paths_on_the_architecture_page_exist() -> None:
    paths = re.findall(
        r"`((?:messager(?:_pytest)?|store|migrations|tests|bench|docs)/[\w./-]*)`", TEXT["architecture.md"]
    )
    assert len(paths) > 30
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_states_on_the_architecture_page_are_those_of_the_code() -> None:
    drawn = re.findall(r"\b[A-Z]{3,}\b", " ".join(fenced("architecture.md", "text")[-2:]))
    assert {*drawn, "STOPPED"} == {*RecorderState.__members__, *ReplayState.__members__}


def test_links_lead_to_files_that_are_there() -> None:
    for page, text in TEXT.items():
        folder = ROOT if page in AT_ROOT else ROOT / "docs"
        for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text):
            assert (folder / target).exists(), (page, target)
            if anchor:
                headings = re.findall(r"^#+ (.*)", TEXT[Path(target).name or page], re.MULTILINE)
                anchors = [re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in headings]
                assert anchor in anchors, (page, anchor)


def fenced(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT[page], re.DOTALL)


def seeded(folder: Path) -> None:
    """Store with the experiments of the examples in the documents.

    A replay that is stepped once still has a message left: it ends with the last one.
    """
    lines = [
        {"ts": 1, "kind": "mark", "meta": {"name": "step", "fields": {"number": 1}}},
        {"ts": 2, "channel": "exps:exp-1:agents:7:agent-chat", "from_id": 3, "to_id": 7, "payload": {"content": "hi"}},
        {"ts": 3, "channel": "exps:exp-1:agents:3:agent-chat", "from_id": 7, "to_id": 3, "payload": {"content": "ho"}},
    ]
    (folder / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for exp in ("exp-1", "exp-2"):
        done = messager("import", "a.jsonl", "--exp", exp, "--tag", "baseline", cwd=folder)
        assert done.returncode == 0, done.stderr


PROGRAMS = [
    (page, at)
    for page in TEXT
    for at, code in enumerate(fenced(page, "python"))
    if ("asyncio.run" in code or "Run(" in code)
    and "def test_" not in code
    and page not in ("README.md", "reproducing.md")  # see the test of the README, and test_reproducing.py
]


@pytest.mark.parametrize(("page", "at"), PROGRAMS)
def test_programs_in_the_documents_run(
    page: str, at: int, tmp_path: Path, redis: RedisServer, mqtt: MqttServer
) -> None:
    code = fenced(page, "python")[at].replace('server="localhost"', f'server="127.0.0.1", port={redis.port}')
    code = code.replace('Messager("localhost"', f'Messager("127.0.0.1", {mqtt.port}')
    if "create=False" in code or "Run(" in code:
        seeded(tmp_path)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    if "Recorder" in code and "Messager" in code:
        rows = json.loads(messager("info", "exp-1", "--json", cwd=tmp_path).stdout)
        assert rows["kinds"]["sent"] == 2 and rows["kinds"]["received"] == 1 and rows["kinds"]["mark"] == 2


BUYER = """

async def buyer(messager: Messager) -> None:
    for fruit in ("apple", "pear"):
        await messager.send_message(messager.get_agent_chat_channel(3), {"from": 7, "content": fruit}, 7, 3)
        while not await messager.fetch_messages():
            await asyncio.sleep(0.01)
"""
RECORD = """

async def main() -> None:
    from messager import MemoryBroker
    from messager_store import EventLog, Recorder

    broker = MemoryBroker()
    async with EventLog.open("messager.db") as log, Recorder(log, "exp-1") as recorder:
        async with Messager(broker, "exp-1") as of_seller, Messager(broker, "exp-1") as of_buyer:
            for agent, messager in ((3, of_seller), (7, of_buyer)):
                messager.add_log_hook(recorder)
                await messager.subscribe_and_start_listening([messager.get_subtopic_channel(agent, "*")])
            selling = asyncio.create_task(seller(of_seller))
            await buyer(of_buyer)
            selling.cancel()


asyncio.run(main())
"""


class Example:
    """The project of docs/testing.md."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark, agents = fenced("testing.md", "python")
        self.agents = textwrap.dedent(agents)
        self.recording = folder / "tests" / "recordings" / "shop.jsonl"

    def record(self) -> None:
        """Record the experiment, and export it with the commands of the page."""
        code = self.agents.replace("import pytest\n", "") + BUYER + RECORD
        done = subprocess.run([sys.executable, "-c", code], cwd=self.folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        self.recording.parent.mkdir(parents=True)
        [export] = [words for words in commands("testing.md") if words[1] == "export"]
        assert messager(*export[1:], cwd=self.folder).returncode == 0

    def run(self, *arguments: str, change: tuple[str, str] = ("", ""), test: str | None = None) -> tuple[int, str]:
        """Run pytest, after a change of the agents. Return its exit code and what it printed."""
        assert change[0] in self.agents
        tests = self.folder / "tests"
        tests.mkdir(exist_ok=True)
        agents = self.agents.replace(*change) if change[0] else self.agents
        (tests / "test_shop.py").write_text(f"{agents}{BUYER}\n\n{self.mark if test is None else test}")
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "120"}
        start = "import sys, pytest; sys.argv[0] = 'pytest'; sys.exit(pytest.main())"  # as the command `pytest` does
        words = [sys.executable, "-c", start, "-p", "messager", "-p", "no:cacheprovider", *arguments]
        done = subprocess.run(words, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def example(tmp_path: Path) -> Example:
    """The project of docs/testing.md, with its recording."""
    made = Example(tmp_path)
    made.record()
    return made


def test_the_test_in_the_documents_passes_fails_as_the_page_shows_and_passes_after_its_command(
    example: Example,
) -> None:
    code, shown = example.run()
    assert code == 0 and "1 passed" in shown, shown
    dearer = ('"pear": 3', '"pear": 4')
    code, shown = example.run(change=dearer)
    [text] = [textwrap.dedent(block) for block in fenced("testing.md", "text")]
    assert code == 1 and text in shown, shown
    [accept] = re.findall(r"^if the change is right: pytest (.*)$", text, re.MULTILINE)
    assert example.run(*shlex.split(accept), change=dearer)[0] == 0
    assert example.run(change=dearer)[0] == 0


@pytest.mark.nightly
def test_the_recording_in_the_documents_can_be_made_by_the_agents_themselves(tmp_path: Path) -> None:
    example = Example(tmp_path)
    both = example.mark.replace("replay(3, seller) ", "replay({3: seller, 7: buyer}) ")
    assert example.run("--recording=new", test=both)[0] == 0
    assert example.run(test=example.mark)[0] == 0


@pytest.mark.nightly
def test_a_line_by_hand_in_the_documents_is_a_recording(tmp_path: Path) -> None:
    example = Example(tmp_path)
    [line] = re.findall(r"^ +(\{\"ts\".*\})$", TEXT["testing.md"], re.MULTILINE)
    answer = {**json.loads(line), "ts": 2, "channel": "exps:shop:agents:7:agent-chat", "from_id": 3}
    answer["payload"] = {"from": 3, "content": "apple: 2"}
    example.recording.parent.mkdir(parents=True)
    example.recording.write_text(f"{line}\n{json.dumps(answer)}\n")
    assert example.run()[0] == 0
    assert messager("import", str(example.recording), "--exp", "by-hand", cwd=tmp_path).returncode == 0


def test_options_and_the_mark_on_the_page_about_testing_are_those_of_the_plugin(pytestconfig: pytest.Config) -> None:
    for option in {*re.findall(r"`--(recording[\w-]*)", TEXT["testing.md"])}:
        pytestconfig.getoption(option.replace("-", "_"))
    [mark] = re.findall(r"`(recording\(path=.*?\))`", TEXT["testing.md"])
    assert any(line.startswith(mark) for line in pytestconfig.getini("markers"))


def test_commands_on_the_page_about_testing_have_their_options(tmp_path: Path) -> None:
    found = [*commands("testing.md"), ["messager", "replay", "--live"]]
    assert len(found) == 5
    for words in found:
        helped = messager(words[1], "--help", cwd=tmp_path).stdout
        for option in (word for word in words[2:] if word.startswith("-")):
            assert re.search(rf"{re.escape(option)}\b", helped), (words, option)


def test_sql_in_the_documents_runs(tmp_path: Path) -> None:
    seeded(tmp_path)
    with sqlite3.connect(tmp_path / "messager.db") as connection:
        statements = [line for block in fenced("querying.md", "sql") for line in block.splitlines() if line]
        results = [connection.execute(statement).fetchall() for statement in statements]
    connection.close()
    assert (results[0], results[2][0][0], len(results)) == ([(3, 7, 1), (7, 3, 1)], 3, 3)


def commands(page: str) -> list[list[str]]:
    found = re.findall(r"^ {4,}(messager .*?)$", TEXT[page], re.MULTILINE)
    return [shlex.split(re.sub(r"\s+#.*|\s*&\s*|\|.*", "", line)) for line in found]


SOCIETY = """
import asyncio
from messager import Messager, RedisConfig

async def main():
    async with Messager(RedisConfig(server="127.0.0.1", port=PORT), "society") as messager:
        await messager.send_message("exps:society:news", {"content": "hello"}, 1)

asyncio.run(main())
"""


class Readme:
    """A folder in which the blocks of the README run; `localhost` is the test's broker."""

    ENDLESS = ("messager record ", "messager view ", "messager replay exp-1 --live ")
    """Beginnings of commands that run until they are interrupted, or wait for a program."""
    NEGATIVE = ("messager problems", "messager diff exp-1 exp-2", "messager status")
    """Beginnings of commands whose answer is, or may be, no: 1."""

    def __init__(self, folder: Path, redis: RedisServer) -> None:
        self.folder, self.redis = folder, redis
        (folder / "my_society.py").write_text(SOCIETY.replace("PORT", str(redis.port)))
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = {**os.environ, "PATH": path, "MESSAGER_BROKER": redis.url, "BROWSER": "true"}
        self.environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # others take seconds to load

    def run(self, block: str) -> None:
        """Run a block of the page: a program, a test, or lines of a shell."""
        if "def test_" in block:
            (self.folder / "tests" / "test_shop.py").write_text(block)
            self._run(sys.executable, "-m", "pytest", "-p", "messager", "-p", "no:cacheprovider", "tests")
        elif "import " in block:
            local = f'server="127.0.0.1", port={self.redis.port}'
            self._run(sys.executable, "-W", "error", "-c", block.replace('server="localhost"', local))
        elif "kill %1" in block:
            self._run("bash", "-e", "-c", block)
        else:
            for line in textwrap.dedent(block).splitlines():
                self._line(re.sub(r"\s+#.*", "", line))

    def _line(self, line: str) -> None:
        if line.startswith(self.ENDLESS):
            self._interrupt(line)
        elif line.startswith("messager redact "):
            assert asked(self.folder, "y\n", *shlex.split(line)[1:])[0] == 1, "no event has that name"
        elif line.startswith("messager "):
            done = messager(*shlex.split(line)[1:], cwd=self.folder, env=self.environment)
            assert done.returncode in ((0, 1) if line.startswith(self.NEGATIVE) else (0,)), (line, done.stderr)
        elif line and not line.startswith("make "):
            self._run("bash", "-e", "-c", line)

    def _run(self, *command: str) -> None:
        given: Any = {"cwd": self.folder, "env": self.environment, "stdin": subprocess.DEVNULL}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, **given)
        assert done.returncode == 0, (command, done.stdout, done.stderr)

    def _interrupt(self, line: str) -> None:
        """Interrupt a command once it has printed something."""
        process = ForkedProgram(forks.COMMAND_LINE, shlex.split(line)[1:], self.folder, self.environment)
        assert process.stdout is not None and process.stderr is not None
        select.select([process.stdout, process.stderr], [], [], 120)
        os.kill(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
        assert stdout + stderr and process.returncode in (0, 130), (line, process.returncode, stdout, stderr)


def test_the_readme_runs_from_top_to_bottom(tmp_path: Path, redis: RedisServer) -> None:
    readme = Readme(tmp_path, redis)
    blocks = re.findall(r"^```python\n(.*?)^```|((?:^ {4}\S[^\n]*\n)+)", TEXT["README.md"], re.MULTILINE | re.DOTALL)
    assert len(blocks) > 10
    for code, lines in blocks:
        readme.run(code or lines)


def test_the_make_targets_the_readme_names_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^    make ([a-z]+)", TEXT["README.md"] + TEXT["performance.md"], re.MULTILINE)
    assert {"demo", "test", "bench"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
