"""Two programs whose agents think with a model, through the OpenAI client, are run again word for word, offline."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from messager import MessageRecord, Transport
from messager.testing import RedisServer
from messager_store import EventLog, Recorder
from messager_store.lockstep.reproduction import verdict
from tests.support import MESSAGER, ROOT, messager, nightly_after
from tests.support.model_stub import ModelStub

PROGRAM = ROOT / "tests" / "support" / "thinking_society.py"


class Town:
    """The programs of a society, and the verbs that run them."""

    def __init__(self, folder: Path, redis: RedisServer, url: str) -> None:
        self._folder = folder
        self._redis = redis
        self._url = url

    def programs(self, prompt: str) -> str:
        """Return the shell command that runs both programs."""
        program = [sys.executable, str(PROGRAM), str(self._redis.port), self._url]
        both = (shlex.join([*program, names, prompt]) for names in ("ann,ben", "cat,dan"))
        return " & ".join(both) + " & wait"

    def run(self, *verb: str, prompt: str = "You live in a town.") -> Any:
        command = [*MESSAGER, *verb, "--", "sh", "-c", self.programs(prompt)]
        return subprocess.run(command, cwd=self._folder, capture_output=True, text=True, timeout=300)


@pytest.fixture
def town(tmp_path: Path, redis: RedisServer) -> Town:
    """A recorded society, whose model does not answer any more."""
    with ModelStub() as model:
        made = Town(tmp_path, redis, model.url)
        done = made.run("run", "--calls")
        assert done.returncode == 0 and " messages of town and " in done.stderr, done.stderr
    return made


@pytest.mark.parametrize("number", nightly_after(1, range(20)))
async def test_every_message_and_every_call_is_equal_with_the_model_stopped(
    town: Town, tmp_path: Path, number: int
) -> None:
    done = town.run("reproduce", "town", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (found["messages"], found["equal_messages"], found["surplus"]) == (20, 20, 0)
    assert found["calls"] == found["equal_calls"] == 28 and found["order_held"] and found["into"] == "town-2"
    for file in filter(Path.is_file, tmp_path.iterdir()):
        assert b"SECRET" not in file.read_bytes()
    async with EventLog.open(str(tmp_path / "messager.db"), create=False) as log:
        assert (await log.experiment("town-2")).meta["reproduces"] == "town"


def test_a_changed_prompt_is_the_first_difference(town: Town) -> None:
    done = town.run("reproduce", "town", "--patience", "3", prompt="You live in a city.")
    assert done.returncode == 1
    first, where, recorded, now, mark = done.stdout.splitlines()
    assert first.startswith("not reproduced, town as town-2: 0 of 20 messages, 0 of 28 calls are equal")
    assert where.startswith("first difference: call of agent ") and where.endswith("/v1/chat/completions")
    assert "You live in a town" in recorded and "You live in a city" in now
    assert recorded[mark.index("^")] == "t" and now[mark.index("^")] == "c"


WITHOUT_AGENTS = """
import multiprocessing, sys
from concurrent.futures import ThreadPoolExecutor
from openai import OpenAI

client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="sk-x")

def ask(text):
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model="m", messages=messages).choices[0].message.content

if __name__ == "__main__":
    print(ask("one"), ask("one"))
    with ThreadPoolExecutor(2) as threads:
        print(*threads.map(ask, "ab"))
    pool = multiprocessing.get_context("spawn").Pool(2)
    print(*pool.map(ask, "cd"))
    pool.close()  # leaving its context would kill the processes
    pool.join()
"""


def test_a_program_without_agents_gets_its_answers_and_the_verdict_says_that_no_order_was_held(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(WITHOUT_AGENTS)
    program = ["--", sys.executable, str(tmp_path / "program.py")]

    def run(*verb: str, url: str) -> Any:
        return subprocess.run(
            [*MESSAGER, *verb, *program, url], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )

    with ModelStub() as model:
        recorded = run("run", "--calls", "--exp", "e1", url=model.url)
        assert "6 calls" in recorded.stderr, recorded.stderr
    again = run("reproduce", "e1", url=model.url)
    assert again.stdout.startswith(recorded.stdout)
    assert again.stdout.splitlines()[-1] == (
        "equal e1 as e1-2: 0 messages, 6 calls, all equal; order not held: some calls have no place in the schedule"
    )
    assert again.returncode == 0


async def test_what_differs_in_outcome_recipient_or_answer_is_not_reproduced(log: EventLog) -> None:
    async def record(exp_id: str, *, blocked: bool, to_id: str, status: int) -> None:
        async with Recorder(log, exp_id) as recorder, Transport(exp_id, recorder) as transport:
            alice = transport.endpoint("alice")
            sent = alice.sent("c", {"n": 1}, "alice", "bob")
            if blocked:
                alice.blocked(sent, "guard")
            alice.sent("c", {"n": 2}, "alice", to_id)
            asked = MessageRecord("asked", sent.ts, None, b"{}", "alice", meta={"url": "http://m/v1/x"}, places={})
            alice.tell(asked)
            meta = {"status": status, "headers": {}}
            alice.tell(MessageRecord("answered", sent.ts, None, b"", None, "alice", meta=meta, places=asked.places))

    first: dict[str, Any] = {"blocked": True, "to_id": "bob", "status": 200}
    await record("e1", **first)
    of = await log.experiment("e1")
    cases: list[tuple[dict[str, Any], tuple[int, int]]] = [
        ({}, (2, 1)),
        ({"blocked": False}, (0, 1)),  # what was refused then is the first that was sent now
        ({"to_id": "carol"}, (1, 1)),
        ({"status": 404}, (2, 0)),
    ]
    for number, (change, equal) in enumerate(cases):
        await record(f"again-{number}", **{**first, **change})
        found = await verdict(log, of, f"again-{number}")
        assert (found.equal_messages, found.equal_calls) == equal, change
        assert found.reproduced == (change == {})


OVER_A_TRANSPORT = """
import asyncio, random
from messager.transport import of_process

async def live(name, names):
    me = of_process().endpoint(name)
    for number in range(4):
        await asyncio.sleep(random.SystemRandom().random() / 100)
        heard = " ".join(one["text"][:6] for one in await me.fetch())
        said = {"text": f"{name} {number}: {heard}"}

        async def publish():
            for other in names:
                if other != name:
                    of_process().endpoint(other).put("room", said, name, carrier="queue")

        await me.sending(publish, "room", said, name, carrier="queue")

async def main(names):
    await asyncio.gather(*(live(name, names) for name in names))

asyncio.run(main(("ann", "ben", "cat")))
"""


def test_agents_that_talk_over_a_transport_say_the_same_again(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(OVER_A_TRANSPORT)
    program = ("--", sys.executable, str(tmp_path / "program.py"))
    assert messager("run", "--exp", "e1", *program, cwd=tmp_path).returncode == 0
    done = messager("reproduce", "e1", *program, cwd=tmp_path)
    assert done.stdout == "reproduced e1 as e1-2: 12 messages, 0 calls, all equal\n", done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_that_is_not_recorded_or_does_not_exist_is_one_line(tmp_path: Path) -> None:
    done = messager("reproduce", "town", "--", "no-such-program", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "no-such-program" in done.stderr
    done = messager("reproduce", "town", "--", sys.executable, cwd=tmp_path)
    assert (done.returncode == 3 and "there is no" in done.stderr) or "does not exist" in done.stderr
