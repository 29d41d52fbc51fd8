"""Msg keeps AgentScope's contract (0.1.1 to 0.1.4) and reads what later versions write."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from messager import Msg
from messager.msg import is_msg, view


def test_a_new_message_has_a_uuid4_and_local_time() -> None:
    msg = Msg("alice", "hi", "user")
    assert re.fullmatch(r"[0-9a-f]{12}4[0-9a-f]{19}", msg.id)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", msg.timestamp)
    assert (msg.name, msg.content, msg.role, msg.url, msg.metadata) == ("alice", "hi", "user", None, None)


def test_a_role_outside_the_three_is_refused_also_when_set() -> None:
    with pytest.raises(ValueError, match="invalid role 'robot'"):
        Msg("a", "b", "robot")
    msg = Msg("a", "b", "system")
    with pytest.raises(ValueError, match="invalid role"):
        msg.role = "robot"
    assert msg.role == "system"


def test_unknown_arguments_warn_and_are_dropped() -> None:
    with pytest.warns(UserWarning, match="host"):
        msg = Msg("a", "b", "user", host="x")
    assert not hasattr(msg, "host")


def test_content_that_json_cannot_hold_warns() -> None:
    with pytest.warns(UserWarning, match="has no JSON form"):
        Msg("a", object(), "user")
    msg = Msg("a", {"fine": 1}, "user")
    with pytest.warns(UserWarning, match="has no JSON form"):
        msg.content = {1, 2}


def test_every_field_can_be_set() -> None:
    msg = Msg("a", "b", "user")
    for field, value in {"id": "1", "name": "n", "content": [1], "role": "assistant", "url": ["u"]}.items():
        setattr(msg, field, value)
        assert getattr(msg, field) == value


def test_formatted_str_shows_name_content_and_a_line_for_each_url() -> None:
    assert Msg("a", "b", "user").formatted_str() == "a: b"
    assert Msg("a", "b", "user", url="u").formatted_str() == "a: b\na: u"
    assert Msg("a", "b", "user", url=["u", "v"]).formatted_str() == "a: b\na: u\na: v"


def test_a_colored_name_has_the_color_of_agentscope_0_1_1_on_each_line() -> None:
    def color(name: str) -> int:
        return 90 + int(hashlib.sha256(name.encode()).hexdigest(), 16) % 8

    names = ["A", "a", "", "h\u00e9", *map(str, range(100))]
    for name in names:
        colored = f"\033[{color(name)}m{name}\033[0m"
        assert Msg(name, "b", "user", url=["u"]).formatted_str(colored=True) == f"{colored}: b\n{colored}: u"
    assert {color(name) for name in names} == set(range(90, 98))
    assert Msg("A", "B", "assistant").formatted_str(colored=True) == "\033[95mA\033[0m: B"
    assert Msg("\ud800", "b", "user").formatted_str(colored=True).endswith("m\ud800\033[0m: b")


def test_a_field_is_read_by_its_name_in_brackets() -> None:
    msg = Msg("a", {"say": 1}, "user", url="u", metadata={"k": 1})
    for field in ("id", "name", "content", "role", "url", "metadata", "timestamp"):
        assert msg[field] == getattr(msg, field)
    with pytest.raises(AttributeError, match="host"):
        msg["host"]


def test_echo_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    Msg("a", "b", "user", echo=True)
    assert "b" in capsys.readouterr().out


def test_to_dict_has_the_seven_fields_and_the_class_and_from_dict_gives_the_same_message() -> None:
    msg = Msg("a", ["b", {"c": 1}], "assistant", url=["u"], metadata={"k": 1})
    data = msg.to_dict()
    fields = {"id", "name", "content", "role", "url", "metadata", "timestamp"}
    assert data.keys() == fields | {"__module__", "__name__"}
    assert data["__name__"] == "Msg"
    again = Msg.from_dict(json.loads(json.dumps(data)))
    assert again == msg
    assert data == again.to_dict()


def test_from_dict_refuses_what_is_no_msg() -> None:
    for change, complaint in [
        ({"__name__": "Other"}, "not a Msg but a 'Other'"),
        ({"__module__": "evil.module"}, "unknown module: 'evil.module'"),
        ({"role": "robot"}, "invalid role"),
    ]:
        with pytest.raises(ValueError, match=complaint):
            Msg.from_dict({**Msg("a", "b", "user").to_dict(), **change})


def test_from_dict_misses_each_field() -> None:
    for field in ["id", "name", "content", "role", "url", "metadata", "timestamp"]:
        data = Msg("a", "b", "user").to_dict()
        del data[field]
        with pytest.raises(ValueError, match=f"without {field}"):
            Msg.from_dict(data)


def test_dicts_of_agentscope_0_1_are_read() -> None:
    data = {**Msg("a", "b", "user", url="u").to_dict(), "__module__": "agentscope.message.msg"}
    assert Msg.from_dict(data).url == "u"
    del data["url"]  # 0.1.4 has none
    assert Msg.from_dict(data).url is None


def test_dicts_of_agentscope_1_are_read() -> None:
    data = {
        "id": "kX9",
        "name": "a",
        "role": "assistant",
        "content": [{"type": "text", "text": "hi"}],
        "metadata": {},
        "timestamp": "2026-01-02 03:04:05.678",
    }
    msg = Msg.from_dict(data)
    assert (msg.id, msg.timestamp, msg.content[0]["text"]) == ("kX9", "2026-01-02 03:04:05.678", "hi")


def test_dicts_of_agentscope_2_are_read_and_fields_without_a_name_here_are_kept() -> None:
    data = {
        "name": "a",
        "content": [{"type": "text", "text": "hi"}],
        "role": "assistant",
        "id": "z1",
        "metadata": {},
        "created_at": "2026-01-02T03:04:05",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    msg = Msg.from_dict(data)
    assert msg.timestamp == "2026-01-02T03:04:05"
    assert msg.extra["usage"] == {"input_tokens": 3, "output_tokens": 4}
    assert Msg.from_dict(msg.to_dict()) == msg


def test_messages_are_equal_by_value() -> None:
    a, b = Msg("a", "b", "user"), Msg("a", "b", "user")
    assert a != b
    b.id, b.timestamp = a.id, a.timestamp
    assert a == b
    b.metadata = {"k": 1}
    assert a != b
    assert a != "a"


def test_any_payload_has_a_view_as_a_message() -> None:
    social = b'{"from": 3, "content": "{\\"content\\": \\"hi\\"}", "day": 1}'
    msg = view(social, ts=0)
    assert (msg.name, msg.content, msg.role) == ("3", '{"content": "hi"}', "user")
    assert view(b"\xff\x00", ts=0, from_id=9).name == "9"
    assert view(b"", ts=0).content == ""
    assert view(b"[1, 2]", ts=0).content == [1, 2]
    sent = Msg("a", "b", "assistant")
    assert view(json.dumps(sent.to_dict()).encode(), ts=0) == sent


def test_a_payload_that_only_looks_like_a_message_is_shown_as_any_other() -> None:
    assert not is_msg({"name": "a", "content": "b"})
    lookalike = {**Msg("a", "b", "user").to_dict(), "__module__": "evil.module"}
    assert view(json.dumps(lookalike).encode(), ts=0).content == "b"
