"""A test replays its recording to live agents, and its failure says what differs."""

from __future__ import annotations

import re

import pytest

from .shop import AGENTS, TALK, TEST, Shop, changed, said, text_of

SENT = """await messager.send_message(messager.get_agent_chat_channel(asked["from"]), answer, 3, asked["from"])
"""


@pytest.fixture
def recorded(shop: Shop) -> Shop:
    shop.record(TALK)
    shop.write()
    return shop


def test_an_agent_that_answers_as_it_did_passes(recorded: Shop) -> None:
    result = recorded.run("-W", "error")
    result.assert_outcomes(passed=1)


def test_a_different_answer_is_shown_below_the_recorded_one_with_the_difference_marked(recorded: Shop) -> None:
    recorded.write(agents=changed('"pear": 3', '"pear": 4'))
    result = recorded.run()
    result.assert_outcomes(failed=1)
    shown = text_of(result)
    assert "agent 3 differs from the recording after 1 of 2 messages" in shown
    assert "tests/recordings/shop.jsonl, line 4\n" in shown
    assert 'heard      {"from": 7, "content": "pear"}' in shown
    recorded_line = '  recorded   {"from": 3, "content": "pear: 3"}'
    live_line = '  live       {"from": 3, "content": "pear: 4"}'
    assert f"{recorded_line}\n{live_line}\n{' ' * live_line.index('4')}^\n" in shown
    assert "differs at $.content" in shown
    assert 'if it differs each run: match=Match(ignore=["content"]) in the mark of the test\n' in shown
    assert "2 expected: 1 matched, 1 different, 0 missing, 0 unexpected" in shown


def test_the_failure_names_commands_that_work(recorded: Shop) -> None:
    long = "x" * 300
    recorded.record([*TALK, said(5, 7, 3, "plum"), said(6, 3, 7, long)])
    recorded.write(agents=changed('"pear": 3', f'"pear": 4, "plum": "{long}"'))
    shown = recorded.run().outlines
    [everything] = [line for line in shown if line.startswith("everything, in full:")]
    command = everything.partition(": ")[2].split()
    assert command == ["pytest", "tests/test_shop.py::test_the_seller_answers_as_it_did", "-vv"]
    full = text_of(recorded.run(*command[1:]))
    assert full.count("differs from the recording") >= 2 and f"plum: {long}" in full
    [accept] = [line for line in shown if line.startswith("if the change is right:")]
    recorded.run(*accept.partition(": ")[2].split()[1:]).assert_outcomes(passed=1)
    recorded.run().assert_outcomes(passed=1)


@pytest.mark.parametrize("key", ["id", "an.id", "deep"])
def test_a_value_that_differs_in_each_run_is_ignored_by_the_rule_that_the_failure_names(
    key: str, recorded: Shop
) -> None:
    made = '{"it": [0, __import__("uuid").uuid4().hex]}' if key == "deep" else '__import__("uuid").uuid4().hex'
    recorded.write(
        TEST.replace('.jsonl"', '.jsonl", match=Match(ignore=["a", "b"])'),
        "from messager_store import Match\n" + changed('{"from": 3,', f'{{"from": 3, "{key}": {made},'),
    )
    recorded.run("--recording=accept").assert_outcomes(passed=1)
    [rule] = re.findall(r"if it differs each run: (ignore=.*) in the mark", text_of(recorded.run()))
    assert rule.startswith('ignore=["a", "b", "')
    tests = TEST.replace('.jsonl"', f'.jsonl", match=Match({rule})')
    recorded.write(tests, (recorded.path / "tests" / "test_shop.py").read_text().partition("@pytest")[0])
    recorded.run().assert_outcomes(passed=1)


def test_no_rule_is_named_for_a_payload_that_differs_as_a_whole(recorded: Shop) -> None:
    recorded.write(agents=changed("answer, 3, asked", "'text', 3, asked"))
    shown = text_of(recorded.run())
    assert "differs from the recording after 0 of 2" in shown and "each run" not in shown


def test_an_agent_that_ends_early_is_reported_without_a_wait(recorded: Shop) -> None:
    recorded.write(agents=changed("    while True:\n", "    for _ in range(1):\n"))
    shown = text_of(recorded.run())
    assert "agent 3 said nothing more after 1 of 2 messages, as it had returned\n" in shown


def test_a_silent_agent_is_reported_as_such(recorded: Shop) -> None:
    recorded.write(agents=changed("            " + SENT, "            await asyncio.sleep(1_000_000)\n"))
    shown = text_of(recorded.run())
    assert "agent 3 said nothing more after 0 of 2 messages, and was waited for in vain\n" in shown
    assert "live       (nothing)" in shown


def test_a_message_that_is_left_out_is_not_called_silence(recorded: Shop) -> None:
    recorded.record([*TALK, said(5, 7, 3, "apple"), said(6, 3, 7, "apple: 2")])
    recorded.write(agents=changed(SENT, f"if asked['content'] != 'pear':\n                {SENT}"))
    shown = text_of(recorded.run())
    assert "\nagent 3 did not say message 2 of 3\n" in shown
    assert "3 expected: 2 matched, 0 different, 1 missing, 0 unexpected" in shown


@pytest.mark.parametrize("module", ["test_shop.py", "shop.py"])
def test_an_agent_that_crashes_is_reported_with_its_traceback(module: str, recorded: Shop) -> None:
    agents = changed('"pear": 3', '"plum": 3')
    if module == "shop.py":
        recorded.write("", agents, name=module)
        agents = "import pytest\nfrom shop import seller\n"
    recorded.write(agents=agents)
    result = recorded.run()
    result.assert_outcomes(failed=1)
    shown = text_of(result)
    assert "agent 3 raised KeyError: 'pear' after 1 of 2 messages" in shown
    assert re.search(r"^> +answer = ", shown, re.MULTILINE) and re.search(rf"tests/{module}:\d+: KeyError", shown)
    assert not re.search(r"messager_pytest/|lockstep/|store/", shown)


def test_a_task_that_an_agent_started_and_that_raises_fails_the_test(recorded: Shop) -> None:
    fails = '            async def fails():\n                raise KeyError("in a task")\n\n'
    recorded.write(agents=changed(SENT, f"{SENT}{fails}            asyncio.create_task(fails())\n"))
    result = recorded.run()
    result.assert_outcomes(failed=1)
    shown = text_of(result)
    assert "a task of agent 3 raised KeyError: 'in a task' after 1 of 2 messages\n" in shown
    assert 'heard      {"from": 7, "content": "apple"}' in shown
    assert re.search(r"^> +raise KeyError", shown, re.MULTILINE) and "--recording=accept" not in shown


@pytest.mark.parametrize(
    ("how", "who"),
    [
        ("KEPT.append(asyncio.create_task(fails()))", "task"),
        ("asyncio.get_running_loop().call_later(0, lambda: PRICES['kiwi'])", "callback"),
    ],
    ids=["a task that is kept", "a callback"],
)
def test_what_raises_unawaited_is_told_also_if_it_is(how: str, who: str, recorded: Shop) -> None:
    fails = "            async def fails():\n                PRICES['kiwi']\n\n"
    recorded.write(agents="KEPT = []\n" + changed(SENT, f"{SENT}{fails}            {how}\n"))
    result = recorded.run()
    result.assert_outcomes(failed=1)
    assert f"a {who} of agent 3 raised KeyError: 'kiwi'" in text_of(result)


def test_a_task_whose_exception_is_handled_fails_nothing(recorded: Shop) -> None:
    fails = "            async def fails():\n                PRICES['kiwi']\n\n"
    handled = "            await asyncio.gather(asyncio.create_task(fails()), return_exceptions=True)\n"
    recorded.write(agents=changed(SENT, f"{SENT}{fails}{handled}"))
    recorded.run().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "how",
    [
        "await again()",
        "asyncio.create_task(again())",
        "asyncio.get_running_loop().call_later(0.005, lambda: asyncio.create_task(again()))",
    ],
)
def test_an_answer_that_was_not_recorded_fails_the_test(how: str, recorded: Shop) -> None:
    again = f"            async def again():\n                {SENT}\n            {how}\n"
    recorded.write(agents=changed(SENT, SENT + again))
    result = recorded.run()
    result.assert_outcomes(failed=1)
    assert "agent 3 said a message that is not in the recording" in text_of(result) or "differs" in text_of(result)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("answer, 3, asked", 'answer, "3", asked', "  sender     '3' (text); the recording has 3 (number)"),
        (
            'get_agent_chat_channel(asked["from"])',
            "get_agent_chat_channel(9)",
            "  channel    exps:shop:agents:9:agent-chat; the recording has exps:shop:agents:7:agent-chat",
        ),
    ],
    ids=["sender", "channel"],
)
def test_a_message_with_another_sender_or_channel_is_said_to_differ_in_that(
    old: str, new: str, says: str, recorded: Shop
) -> None:
    recorded.write(agents=changed(old, new))
    shown = text_of(recorded.run())
    assert "said a message that is not in the recording, besides 0 of 2 that are\n" in shown
    assert f"{says}\n" in shown
    assert shown.count("\n  channel ") == 1


def test_a_judge_that_raises_fails_the_test_under_its_own_name(recorded: Shop) -> None:
    mark = '\n@pytest.mark.recording("shop.jsonl", match=Match(judge=judge))\ndef test_it(replay): replay(3, seller)\n'
    judge = "from messager_store import Match\n\nasync def judge(one, other):\n    return 1 / 0\n"
    recorded.write(mark, judge + changed('"pear": 3', '"pear": 4'))
    shown = text_of(recorded.run())
    assert "the judge of the Match raised ZeroDivisionError: division by zero. Correct it" in shown
    assert "agent 3" not in shown and "return 1 / 0" in shown


def test_what_is_ignored_or_judged_equal_is_no_difference(recorded: Shop) -> None:
    recorded.record([said(1, 7, 3, "apple"), said(2, 3, 7, "apple: 2 euro")])
    mark = '\n@pytest.mark.recording("shop.jsonl", match=Match({}))\ndef test_it(replay):\n    replay(3, seller)\n'
    agents = (
        "from messager_store import Match\n\nasync def judge(one, other):\n    return one['from'] == other['from']\n"
    )
    for rule, outcome in (('ignore=["content"]', 1), ("judge=judge", 1), ('ignore=["from"]', 0)):
        recorded.write(mark.format(rule), agents + AGENTS)
        recorded.run().assert_outcomes(passed=outcome, failed=1 - outcome)


def test_the_clock_of_a_live_agent_begins_when_the_recording_does(recorded: Shop) -> None:
    hour = 3_600_000_000_000
    recorded.record(
        [said(hour + number, 7, 3, "apple") | {"ts": hour} for number in (1,)] + [said(hour, 3, 7, "apple: 3600")]
    )
    recorded.write(agents=changed("PRICES[asked['content']]", "messager.clock.now() // 1_000_000_000"))
    recorded.run().assert_outcomes(passed=1)


def test_an_hour_that_an_agent_sleeps_is_awaited_if_the_recording_shows_it(recorded: Shop) -> None:
    hour = 3_600_000_000_000
    recorded.record([said(1, 7, 3, "apple"), said(2 + hour, 3, 7, "apple: 2")])
    recorded.write(
        agents=changed("            answer =", "            await asyncio.sleep(3600)\n            answer =")
    )
    recorded.run().assert_outcomes(passed=1)


def test_an_agent_that_raises_when_the_replay_ends_fails_the_test(recorded: Shop) -> None:
    raises = """
async def raising(messager):
    try:
        await seller(messager)
    finally:
        PRICES['kiwi']
"""
    recorded.write(raises + TEST.replace("3, seller", "3, raising"))
    result = recorded.run()
    result.assert_outcomes(failed=1)
    assert "agent 3 raised KeyError: 'kiwi'" in text_of(result) and "PRICES['kiwi']" in text_of(result)


def test_an_agent_that_cannot_be_cancelled_does_not_hold_up_the_test(recorded: Shop) -> None:
    stubborn = """
async def stubborn(messager):
    selling = asyncio.create_task(seller(messager))
    while True:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            pass
"""
    recorded.write(stubborn + TEST.replace("3, seller", "3, stubborn"))
    recorded.run().assert_outcomes(passed=1)


def test_live_agents_do_not_record_themselves(recorded: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESSAGER_STORE", str(recorded.path / "messager.db"))
    recorded.write(TEST + "\n\ndef test_after():\n    import os\n    assert 'MESSAGER_STORE' in os.environ\n")
    recorded.run().assert_outcomes(passed=2)
    assert not (recorded.path / "messager.db").exists()


def test_an_agent_that_opens_a_connection_in_virtual_time_is_told_what_to_do(recorded: Shop) -> None:
    opens = "    await asyncio.open_connection('127.0.0.1', 1)\n    while True:\n"
    recorded.write(agents=changed("    while True:\n", opens))
    shown = text_of(recorded.run())
    assert "agent 3 after 0 of 2 messages raised VirtualTimeRefused" in shown and "await replay.play(...)" in shown


def test_a_test_that_never_calls_replay_fails(recorded: Shop) -> None:
    recorded.write("\ndef test_it(replay):\n    pass\n")
    result = recorded.run()
    result.assert_outcomes(failed=1)
    assert "does not call it" in text_of(result)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("replay.play(3, seller)", "`replay.play(...)` was not awaited"),
        ("replay(3, lambda messager: None)", "which is not async. Give an async function that takes a Messager."),
        ("replay(3, 5)", "is played by 5. Give an async function"),
        ("replay(seller)", "replay(3, seller), replay({3: seller, 7: buyer})"),
        ("replay(9, seller)", "agent 9 says nothing in shop. Its senders are 7, 3"),
        ("replay('3', seller)", "agent '3' says nothing in shop. Its senders are 7, 3"),
    ],
)
def test_a_call_that_cannot_be_played_says_what_would_be_right(call: str, says: str, recorded: Shop) -> None:
    recorded.write(TEST.replace("replay(3, seller)", call))
    result = recorded.run()
    result.assert_outcomes(failed=1)
    assert says in text_of(result)


@pytest.mark.parametrize(
    ("mark", "says"),
    [
        ('"shop.jsonl", match=["id"]', 'give its rules, for example match=Match(ignore=["id"])'),
        ('"shop.jsonl", ignore=["id"]', "has no argument 'ignore'"),
        ('"a", "b"', "takes one path"),
        ('"shop.jsonl", patience=0', "patience=0"),
    ],
)
def test_a_mark_with_wrong_arguments_says_what_would_be_right(mark: str, says: str, recorded: Shop) -> None:
    recorded.write(TEST.replace('"shop.jsonl"', mark))
    result = recorded.run()
    result.assert_outcomes(errors=1)
    assert says in text_of(result)
    if "has no" in says or "takes one" in says:
        assert "recording(path=None" in text_of(result)


def test_a_name_with_a_typing_error_is_answered_with_the_name_that_is_meant(recorded: Shop) -> None:
    recorded.write(TEST.replace("shop.jsonl", "shop.jsnl"))
    assert "no recording tests/recordings/shop.jsnl: did you mean shop.jsonl?" in text_of(recorded.run())
    recorded.write(TEST.partition("\n")[2].partition("\n")[2])
    assert "the test has no mark `recording`" in text_of(recorded.run())


def test_a_mark_of_the_module_holds_for_its_tests_unless_they_have_their_own(recorded: Shop) -> None:
    recorded.record([said(1, 7, 3, "apple"), said(2, 3, 7, "another")])
    marks = 'pytestmark = pytest.mark.recording("shop.jsonl", match=Match(ignore=["content"]))\n'
    tests = "\ndef test_it(replay):\n    replay(3, seller)\n\n@pytest.mark.recording(match=Match())" + (
        "\ndef test_exactly(replay):\n    replay(3, seller)\n"
    )
    recorded.write(marks + tests, "from messager_store import Match\n" + AGENTS)
    result = recorded.run()
    result.assert_outcomes(passed=1, failed=1)


def test_a_line_that_is_wrong_is_named_with_its_file_and_number(recorded: Shop) -> None:
    recorded.record('{"ts": 1, "channel": "a", "payload": {}}\n\n{"ts": 2, "channel": "a", "payload": {}\n')
    result = recorded.run()
    result.assert_outcomes(failed=1)
    assert "recordings/shop.jsonl, line 3: not JSON" in text_of(result)
    assert "Nothing was imported" not in text_of(result)
