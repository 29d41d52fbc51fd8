"""Recordings change only where a person asked for it: `--recording=new` and `--recording=accept`."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from messager_store.formats import output_format
from tests.support import messager

from .shop import AGENTS, TALK, TEST, Shop, changed, said, text_of

BOTH = """
@pytest.mark.recording("shop.jsonl")
def test_both(replay):
    replay({3: seller, 7: buyer})
"""
SENT = """await messager.send_message(messager.get_agent_chat_channel(asked["from"]), answer, 3, asked["from"])
"""
DEARER = changed('"pear": 3', '"pear": 4')


@pytest.fixture(scope="module")
def made() -> list[bytes]:
    """The recording that the agents make, once they have made it."""
    return []


@pytest.fixture
def recorded(shop: Shop, made: list[bytes]) -> Shop:
    """Project with a recording that its agents made, with schedule."""
    shop.write(BOTH)
    if not made:
        shop.run("--recording=new").assert_outcomes(passed=1)
        made.append(shop.recording.read_bytes())
    shop.recording.parent.mkdir(exist_ok=True)
    shop.recording.write_bytes(made[0])
    return shop


def test_a_missing_recording_fails_and_says_how_to_make_it(shop: Shop) -> None:
    shop.write(BOTH)
    result = shop.run()
    result.assert_outcomes(failed=1)
    shown = text_of(result)
    assert "there is no recording tests/recordings/shop.jsonl" in shown
    assert "mkdir -p tests/recordings && messager export EXP -o tests/recordings/shop.jsonl" in shown
    assert "pytest tests/test_shop.py::test_both --recording=new" in shown
    assert not shop.recording.parent.exists()


def test_new_makes_the_recording_that_is_missing_and_lists_it(shop: Shop) -> None:
    shop.write(BOTH.replace("replay({3: seller, 7: buyer})", "assert replay({3: seller, 7: buyer}).equal"))
    result = shop.run("--recording=new")
    result.assert_outcomes(passed=1)
    assert "tests/recordings/shop.jsonl: 4 messages recorded" in text_of(result)
    assert shop.contents() == ["apple", "apple: 2", "pear", "pear: 3"]
    schedule = [line.get("arrival") for line in shop.events() if line["kind"] == "sent"]
    assert schedule == [0, 1, 1, 2]
    shop.run().assert_outcomes(passed=1)


@pytest.mark.parametrize("name", ["two words.jsonl", "shop.jsonl.gz"])
def test_the_command_that_exports_a_recording_is_one_that_a_shell_and_export_take(name: str, shop: Shop) -> None:
    shop.write(BOTH.replace("shop.jsonl", name))
    [line] = [line for line in shop.run().outlines if "messager export" in line]
    words = shlex.split(line.partition(": ")[2])
    assert words == [
        "mkdir",
        "-p",
        "tests/recordings",
        "&&",
        *["messager", "export", "EXP", "-o"],
        f"tests/recordings/{name}",
    ]
    assert output_format(words[-1], "export").verb == "export"


@pytest.mark.parametrize("mode", ["none", "new"])
def test_a_recording_is_not_made_under_a_name_that_is_none_of_a_recording(mode: str, shop: Shop) -> None:
    shop.write(BOTH.replace("shop.jsonl", "shop.txt"))
    result = shop.run(f"--recording={mode}")
    result.assert_outcomes(failed=1)
    assert "The name of a recording ends in .jsonl or .jsonl.gz: correct it in the mark of the test." in text_of(result)
    assert not shop.recording.parent.exists()


def test_a_test_that_fails_after_its_replay_makes_no_recording(shop: Shop) -> None:
    shop.write(BOTH + "    assert False\n")
    result = shop.run("--recording=new")
    result.assert_outcomes(failed=1)
    assert not shop.recording.exists() and "recordings changed" not in text_of(result)


def test_a_test_that_makes_a_recording_compares_with_it_in_its_next_replay(shop: Shop) -> None:
    other = "\nasync def other(messager):\n    PRICES['pear'] = 4\n    await seller(messager)\n"
    for player, outcome in (("seller", "passed"), ("other", "failed")):
        shop.write(other + BOTH + f"    replay(3, {player})\n")
        result = shop.run("--recording=new")
        result.assert_outcomes(**{outcome: 1})
        assert shop.recording.exists() == (outcome == "passed")
        shop.recording.unlink(missing_ok=True)
    assert "tests/recordings/shop.jsonl, line" in text_of(result)


def test_the_same_agents_make_the_same_recording_again(recorded: Shop) -> None:
    before = recorded.recording.read_bytes()
    recorded.recording.unlink()
    recorded.run("--recording=new").assert_outcomes(passed=1)
    assert recorded.recording.read_bytes() == before


def test_agents_that_do_not_subscribe_hear_what_was_said_before_they_first_fetched(shop: Shop) -> None:
    """As the seller of docs/testing.md, and a buyer that asks before it fetches for the first time."""
    agents = re.sub(r"    await messager.subscribe_and_start_listening.*\n", "", AGENTS).replace(
        "sleep(0.1)", "sleep(0.01)"
    )
    buyer_is_late = agents.replace(
        "        while not await messager.f",
        "        await asyncio.sleep(1)\n" + " " * 8 + "while not await messager.f",
    )
    for text in (agents, buyer_is_late):
        shop.write(BOTH, text)
        result = shop.run("--recording=new")
        result.assert_outcomes(passed=1)
        assert shop.contents() == ["apple", "apple: 2", "pear", "pear: 3"]
        assert "4 messages recorded, until 30 s of silence (agent 3 had not returned)" in text_of(result)
        shop.run().assert_outcomes(passed=1)
        shop.recording.unlink()


def test_an_agent_that_subscribes_itself_receives_what_it_subscribed_to_once(shop: Shop) -> None:
    late = """
async def listener(messager):
    await asyncio.sleep(1)
    await messager.subscribe_and_start_listening(["exps:shop:agents:3:b"])
    heard = []
    for _ in range(20):
        heard += [message["data"] for message in await messager.fetch_messages()]
        await asyncio.sleep(0.1)
    await messager.send_message("exps:shop:heard", {"content": str(len(heard))}, 3)

async def speaker(messager):
    for _ in range(2):
        for name in "ab":
            await messager.send_message(f"exps:shop:agents:3:{name}", {"content": name}, 7)
        await asyncio.sleep(2)
"""
    shop.write(late + BOTH.replace("3: seller, 7: buyer", "3: listener, 7: speaker"))
    result = shop.run("--recording=new")
    result.assert_outcomes(passed=1)
    assert shop.contents() == ["a", "b", "a", "b", "1"] and "returned" not in text_of(result)
    shop.run().assert_outcomes(passed=1)


def test_a_new_recording_can_be_imported(recorded: Shop) -> None:
    done = messager("import", str(recorded.recording), "--exp", "shop", "--store", "a.db", cwd=recorded.path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mode", ["none", "new"])
def test_a_recording_that_is_there_is_left_as_it_is(mode: str, recorded: Shop) -> None:
    before = {path: path.read_bytes() for path in recorded.recording.parent.rglob("*") if path.is_file()}
    recorded.write(BOTH, DEARER)
    recorded.run(f"--recording={mode}").assert_outcomes(failed=1)
    assert {path: path.read_bytes() for path in recorded.recording.parent.rglob("*") if path.is_file()} == before


def test_an_agent_alone_that_says_nothing_makes_no_recording(shop: Shop) -> None:
    shop.write()
    result = shop.run("--recording=new")
    result.assert_outcomes(failed=1)
    assert "agent 3 alone said nothing" in text_of(result) and "messager export EXP -o" in text_of(result)
    assert not shop.recording.exists()


def test_agents_that_crash_make_no_recording(shop: Shop) -> None:
    shop.write(BOTH, changed('"pear": 3', '"plum": 3'))
    result = shop.run("--recording=new")
    result.assert_outcomes(failed=1)
    shown = text_of(result)
    assert "agent 3 raised KeyError('pear'). No recording was made." in shown
    assert re.search(r"^> +answer = ", shown, re.MULTILINE) and "asyncio/" not in shown
    assert not shop.recording.exists()


def test_agents_whose_tasks_raise_make_no_recording(shop: Shop) -> None:
    fails = "    async def fails():\n        PRICES['kiwi']\n\n    asyncio.create_task(fails())\n"
    shop.write(BOTH, changed("    for fruit in", f"{fails}    for fruit in"))
    result = shop.run("--recording=new")
    result.assert_outcomes(failed=1)
    assert "a task of agent 7 raised KeyError: 'kiwi'. No recording was made." in text_of(result)
    assert not shop.recording.exists()


def test_agents_that_do_not_end_are_recorded_for_the_seconds_of_the_mark(shop: Shop) -> None:
    ticker = """
async def ticker(messager):
    while True:
        await messager.send_message("exps:shop:clock", {"from": 1, "content": "tick"}, 1)
        await asyncio.sleep(1)

MARK
def test_it(replay):
    replay(1, ticker)
"""
    shop.write(ticker.replace("MARK", '@pytest.mark.recording("shop.jsonl", seconds=10.5)'))
    shop.run("--recording=new").assert_outcomes(passed=1)
    assert len(shop.contents()) == 11
    shop.recording.unlink()
    shop.write(ticker.replace("MARK", '@pytest.mark.recording("shop.jsonl")'))
    result = shop.run("--recording=new")
    result.assert_outcomes(failed=1)
    assert "recording(seconds=60)" in text_of(result) and not shop.recording.exists()


def test_accept_takes_over_what_is_said_now_in_the_lines_that_change(recorded: Shop) -> None:
    before = recorded.recording.read_text().splitlines()
    recorded.write(BOTH, DEARER)
    result = recorded.run("--recording=accept")
    result.assert_outcomes(passed=1)
    assert "tests/recordings/shop.jsonl: 1 message changed" in text_of(result)
    after = recorded.recording.read_text().splitlines()
    assert [new for old, new in zip(before, after, strict=True) if old != new] == [
        line.replace("pear: 3", "pear: 4") for line in before if "pear: 3" in line
    ]
    recorded.run().assert_outcomes(passed=1)


SILENT = changed(f"            {SENT}", "")


@pytest.mark.parametrize("schedule", [True, False], ids=["with a schedule", "without a schedule"])
def test_an_accepted_recording_in_which_an_agent_says_nothing_any_more_is_green(shop: Shop, schedule: bool) -> None:
    shop.write(BOTH)
    if schedule:
        shop.run("--recording=new").assert_outcomes(passed=1)
    else:
        shop.record(TALK)
    shop.write(agents=SILENT)
    shop.run().assert_outcomes(failed=1)
    assert "shop.jsonl: 2 messages dropped" in text_of(shop.run("--recording=accept"))
    assert shop.contents() == ["apple", "pear"]
    shop.run().assert_outcomes(passed=1)
    shop.write()
    result = shop.run()
    assert "0 expected: 0 matched, 0 different, 0 missing, 2 unexpected" in text_of(result)
    shop.run("--recording=accept").assert_outcomes(passed=1)
    assert shop.contents() == ["apple", "pear", "apple: 2", "pear: 3"]  # nothing was awaited between the questions
    answers = [line for line in shop.events() if line.get("kind", "sent") == "sent" and line.get("from_id") == 3]
    assert [line.get("arrival") for line in answers] == ([2, 2] if schedule else [None, None])
    shop.run().assert_outcomes(passed=1)


def test_accept_adds_the_answers_to_questions_that_were_written_by_hand(shop: Shop) -> None:
    shop.record([said(1, 7, 3, "apple")])
    shop.write()
    shop.run("--recording=accept").assert_outcomes(passed=1)
    assert shop.contents() == ["apple", "apple: 2"]
    shop.run().assert_outcomes(passed=1)


def test_accept_does_not_drop_the_last_trace_of_an_agent(shop: Shop) -> None:
    shop.record([TALK[0] | {"channel": "clock", "to_id": None}])
    before = shop.recording.read_bytes()
    shop.write(TEST.replace("3, seller", "7, seller"), "import pytest\n\nasync def seller(messager):\n    pass\n")
    result = shop.run("--recording=accept")
    assert result.ret == 1 and "shop.jsonl is left as it is" in text_of(result)
    assert shop.recording.read_bytes() == before


def test_accept_leaves_a_recording_whose_agents_say_the_same(recorded: Shop) -> None:
    before = recorded.recording.stat().st_mtime_ns
    result = recorded.run("--recording=accept")
    result.assert_outcomes(passed=1)
    assert recorded.recording.stat().st_mtime_ns == before and "recordings changed" not in text_of(result)


def test_accept_keeps_recorded_values_that_the_comparison_ignores(recorded: Shop) -> None:
    mark = '\n@pytest.mark.recording("shop.jsonl", match=Match(ignore=["content"]))\n'
    recorded.write(
        mark + "def test_it(replay):\n    replay(3, seller)\n", "from messager_store import Match\n" + DEARER
    )
    before = recorded.recording.read_bytes()
    recorded.run("--recording=accept").assert_outcomes(passed=1)
    assert recorded.recording.read_bytes() == before


@pytest.mark.parametrize(
    ("agents", "tests"),
    [
        (changed('"pear": 3', '"plum": 3'), TEST),
        (DEARER, TEST + "    assert False\n"),
        (DEARER, TEST + "    pytest.skip()\n"),
        (DEARER, TEST.replace("def ", "@pytest.mark.skip\ndef ")),
    ],
    ids=["the agent crashed", "the test failed otherwise", "the test was skipped in it", "the test did not run"],
)
def test_accept_changes_nothing_if(agents: str, tests: str, recorded: Shop) -> None:
    before = recorded.recording.read_bytes()
    recorded.write(tests, agents)
    assert recorded.run("--recording=accept").parseoutcomes().keys() <= {"failed", "skipped"}
    assert recorded.recording.read_bytes() == before


def test_accept_changes_only_the_recordings_of_tests_that_ran(recorded: Shop) -> None:
    other = recorded.recording.with_name("other.jsonl")
    other.write_bytes(recorded.recording.read_bytes())
    before = recorded.recording.read_bytes()
    recorded.write(BOTH + BOTH.replace("shop.jsonl", "other.jsonl").replace("test_both", "test_other"), DEARER)
    recorded.run("--recording=accept", "-k", "other").assert_outcomes(passed=1, deselected=1)
    assert recorded.recording.read_bytes() == before and "pear: 4" in recorded.contents(other)


def test_accepted_payloads_of_an_export_stay_text(shop: Shop) -> None:
    shop.record([{**line, "payload": json.dumps(line["payload"])} for line in TALK])
    shop.write(agents=DEARER)
    shop.run("--recording=accept").assert_outcomes(passed=1)
    assert shop.events()[-1]["payload"] == '{"from": 3, "content": "pear: 4"}'


def test_two_tests_that_share_a_recording_both_accept_into_it_also_in_parallel(recorded: Shop) -> None:
    pytest.importorskip("xdist")
    tests = TEST + TEST.replace("test_the", "test_buyer_the").replace("3, seller", "7, buyer")
    agents = changed('"pear": 3', '"pear": 4').replace('"content": fruit}', '"content": fruit, "polite": True}')
    recorded.write(tests, agents)
    result = recorded.run("--recording=accept", "-n", "2", plugins=("messager", "xdist"))
    assert result.ret == 0 and "tests/recordings/shop.jsonl: 3 messages changed" in text_of(result)
    assert recorded.run("--recording=accept").ret == 0
    assert recorded.contents()[-1] == "pear: 4"
    assert [
        line["payload"].get("polite")
        for line in recorded.events()
        if line.get("from_id") == 7 and "sent" in line["kind"]
    ]
    recorded.run().assert_outcomes(passed=2)


ONE_AGENT, OTHER_AGENT = (TEST.replace("test_the", name) for name in ("test_one", "test_other"))


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param((), id="one after the other"),
        pytest.param(("-n", "2"), id="in parallel", marks=pytest.mark.nightly),
    ],
)
def test_tests_that_accept_different_messages_of_an_agent_are_errors_and_change_nothing(
    workers: tuple[str, ...], recorded: Shop
) -> None:
    pytest.importorskip("xdist")
    before = recorded.recording.read_bytes()
    dearer = (
        "\nasync def dearer(messager):\n    PRICES['pear'] = 5\n    await seller(messager)\n    PRICES['pear'] = 4\n"
    )
    for other in (OTHER_AGENT.replace("3, seller", "3, dearer"), OTHER_AGENT.replace("3, seller", "3, cheaper")):
        cheaper = dearer.replace("dearer", "cheaper").replace("= 5", "= 3")
        recorded.write(dearer + cheaper + ONE_AGENT + other, DEARER)
        result = recorded.run(
            "--recording=accept", *workers, plugins=("messager", "xdist") if workers else ("messager",)
        )
        shown = text_of(result)
        assert result.ret == 1 and "2 passed, 2 errors" in shown and "recordings changed" not in shown
        assert "tests/recordings/shop.jsonl is left as it is: the tests that share it accept different" in shown
        names = "tests/test_shop.py::test_one_seller_answers_as_it_did\n", "tests/test_shop.py::test_other_seller_ans"
        assert all(f"  {name}" in shown for name in names)
        assert recorded.recording.read_bytes() == before


def test_a_test_may_play_one_agent_after_the_other_and_accept_both(recorded: Shop) -> None:
    agents = changed('"pear": 3', '"pear": 4').replace('"content": fruit}', '"content": fruit, "polite": True}')
    recorded.write(TEST + "    replay(7, buyer)\n", agents)
    recorded.run().assert_outcomes(failed=1)
    result = recorded.run("--recording=accept")
    result.assert_outcomes(passed=1)
    assert "tests/recordings/shop.jsonl: 3 messages changed" in text_of(result)
    recorded.run().assert_outcomes(passed=1)


def test_a_recording_whose_name_ends_in_gz_is_compressed(shop: Shop) -> None:
    shop.write(BOTH.replace("shop.jsonl", "shop.jsonl.gz"))
    shop.run("--recording=new").assert_outcomes(passed=1)
    packed = shop.recording.with_name("shop.jsonl.gz")
    assert packed.read_bytes()[:2] == b"\x1f\x8b"
    shop.write(BOTH.replace("shop.jsonl", "shop.jsonl.gz"), DEARER)
    shop.run("--recording=accept").assert_outcomes(passed=1)
    shop.run().assert_outcomes(passed=1)


def test_unused_recordings_are_listed(recorded: Shop) -> None:
    unused = recorded.recording.parent / "test_gone" / "test_it.jsonl"
    recorded.record(TALK, unused)
    recorded.record(TALK, recorded.recording.parent / "test_shop" / "test_by_name.jsonl")
    recorded.write(BOTH + "\ndef test_by_name(replay):\n    replay(3, seller)\n")
    for arguments in ((), ("--collect-only",), ("-k", "nothing")):
        shown = text_of(recorded.run("--recording-unused", *arguments))
        assert "tests/recordings/test_gone/test_it.jsonl" in shown
        assert "recordings/shop.jsonl\n" not in shown and "test_by_name.jsonl" not in shown
        assert "note:" not in shown
    recorded.write("", "", name="test_another.py")
    for argument in ("tests/test_shop.py", "tests/test_shop.py::test_both"):
        shown = text_of(recorded.run("--recording-unused", argument))
        assert "note: 1 of 2 test files were not collected, and may use them: tests/test_another.py\n" in shown
    (recorded.path / "tests" / "test_another.py").unlink()
    shown = text_of(recorded.run("--recording-unused", "tests/test_shop.py::test_both"))
    assert "note: only tests/test_shop.py::test_both was collected, other tests may use them\n" in shown
    unused.unlink()
    assert "none: the collected tests use every recording" in text_of(recorded.run("--recording-unused"))


def test_unused_recordings_are_listed_of_tests_in_parallel(recorded: Shop) -> None:
    pytest.importorskip("xdist")
    recorded.record(TALK, recorded.recording.with_name("gone.jsonl"))
    shown = text_of(recorded.run("--recording-unused", "-n", "2", plugins=("messager", "xdist")))
    assert "tests/recordings/gone.jsonl" in shown and "recordings/shop.jsonl\n" not in shown and "note:" not in shown


def test_a_recording_that_cannot_be_written_is_an_error_that_names_it(shop: Shop) -> None:
    shop.write(BOTH)
    Path(shop.path / "tests" / "recordings").write_text("a file")
    result = shop.run("--recording=new")
    assert result.ret == 1
    assert "recordings" in text_of(result) and "Traceback" not in text_of(result)


@pytest.mark.parametrize("where", ["messager.get_agent_chat_channel(asked['from'])", "'exps:shop:log'"])
def test_a_message_less_is_a_line_less_and_a_message_more_is_a_line_more(where: str, recorded: Shop) -> None:
    """All other lines stay as they are, also those of the same channel that the replay compared with others."""
    extra = changed(SENT, f'await messager.send_message({where}, {{"content": "first"}}, 3)\n            {SENT}')
    without = recorded.recording.read_text().splitlines()
    recorded.write(agents=extra)
    recorded.run("--recording=accept").assert_outcomes(passed=1)
    more = recorded.recording.read_text().splitlines()
    assert [line for line in more if '"first"' not in line] == without and len(more) == len(without) + 2
    recorded.run().assert_outcomes(passed=1)
    recorded.write()
    recorded.run("--recording=accept").assert_outcomes(passed=1)
    assert recorded.recording.read_text().splitlines() == without


def test_messages_without_a_sender_are_accepted_as_those_of_their_agent(shop: Shop) -> None:
    """As the paybacks of AgentSociety, which name no sender."""
    payback = 'await messager.send_message(messager.get_user_payback_channel(), {"count": 1})'
    paying = changed(SENT, f"{SENT}            {payback}\n")
    shop.write(BOTH, paying)
    shop.run("--recording=new").assert_outcomes(passed=1)
    for count in ("2", "3"):
        shop.write(agents=paying.replace('"count": 1', f'"count": {count}'))
        result = shop.run("--recording=accept")
        assert "shop.jsonl: 2 messages changed" in text_of(result)
        shop.run().assert_outcomes(passed=1)
    shop.recording.unlink()
    shop.record(TALK)
    result = shop.run("--recording=accept")
    assert "shop.jsonl: 2 messages added" in text_of(result)
    shop.run().assert_outcomes(passed=1)
