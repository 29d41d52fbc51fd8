"""Pseudonyms for agents: the same one for the same agent all through an export, and another in the next.

They are drawn at random: who has the file alone cannot compute them back, as one could with hashes
of ids that are easy to guess, or read off who spoke first. Nobody keeps the mapping.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from messager import channels

from .json_paths import loads

AGENT_KEYS = frozenset(
    [
        "from",
        "to",
        "name",
        "sender",
        "recipient",
        "receiver",
        "from_id",
        "to_id",
        "agent",
        "agent_id",
        "agent_name",
        "agent_ids",
        "agents",
        "sender_id",
        "sender_name",
        "recipient_id",
        "recipient_name",
        "recipients",
        "receiver_id",
        "receiver_name",
        "receivers",
        "user",
        "user_id",
        "user_name",
        "username",
        "speaker",
        "author",
        "source",
        "source_id",
        "target",
        "target_id",
        "participant",
        "participants",
        "members",
    ]
)
"""Keys of payloads under which ids and names of agents stand."""
_ID_KEYS = frozenset(["id", "uid", "uuid", "key"])
"""Keys that name an agent in an object that stands under one of `AGENT_KEYS`."""
_MESSAGE_KEYS = frozenset(
    ["msg_id", "message_id", "reply_to", "in_reply_to", "replyTo", "inReplyTo", "parent_id", "correlation_id"]
)
"""Keys of payloads under which ids of messages stand."""
_SEGMENT = re.compile(r"[^:./]+")
_SPACELESS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\uffef\U00020000-\U0003ffff]")
"""Scripts that put no spaces between words."""
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}", re.A)
_WORD = re.compile(r"\w+")
_LEAST = 3
"""Names of fewer letters are not looked for inside texts: they would be found in any."""


class Pseudonyms:
    """Replaces agents' ids and names. `known` are those that there are; `draw` is where chance comes from."""

    def __init__(self, known: Iterable[Any], draw: random.Random | None = None) -> None:
        self._draw = draw or random.SystemRandom()
        self._salt = self._draw.randbytes(16)
        self._numbers: dict[int, int] = {}
        self._names: dict[str, str] = {}
        self._taken: set[int] = set()
        self._size = 1_000_000
        known = list(known)
        texts = [agent for agent in known if isinstance(agent, str) and not _NUMBER.fullmatch(agent)]
        for agent in known:
            if isinstance(agent, int) and not isinstance(agent, bool):
                self._taken.add(agent)  # so that nobody gets the number of another
        self._known = {text: self._name(text) for text in texts}
        self._ids = {str(agent) for agent in known if not isinstance(agent, bool) and _NUMBER.fullmatch(str(agent))}
        inside = [text for text in texts if len(text) > 1 and _SPACELESS.search(text)]
        inside.sort(key=len, reverse=True)
        self._inside = re.compile("|".join(map(re.escape, inside))) if inside else None
        long = [text for text in texts if len(text) >= _LEAST]
        self._single = {text.casefold(): self._known[text] for text in long if _WORD.fullmatch(text)}
        phrases = sorted((text for text in long if not _WORD.fullmatch(text)), key=len, reverse=True)
        self._phrases = {text.casefold(): self._known[text] for text in phrases}
        self._phrase = (
            re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, phrases)) + r")(?!\w)", re.I) if phrases else None
        )

    def agent(self, agent: Any) -> Any:
        """Another id of the same JSON type; 7 and "7" stay the same number. true, false and null are nobody's."""
        if agent is None or isinstance(agent, bool):
            return agent
        if isinstance(agent, int):
            return self._number(agent)
        if isinstance(agent, str):
            if _NUMBER.fullmatch(agent):
                return str(self._number(int(agent)))
            return self._name(agent) if agent else agent
        return self._name(json.dumps(agent, sort_keys=True))

    def channel(self, channel: str) -> str:
        """The channel of the agent's pseudonym; outside the grammar, names that stand in it as words go."""
        parsed = channels.parse(channel)
        if parsed is None or parsed.agent_id is None:
            return self.text(_SEGMENT.sub(lambda found: self._segment(found[0]), channel))
        return self.text(channels.with_agent(channel, self.agent(parsed.agent_id)))

    def _segment(self, text: str) -> str:
        """A text that is a known id as a whole, or the same text."""
        return str(self.agent(text)) if text in self._known or text in self._ids else text

    def text(self, text: str) -> str:
        """Free text with the known names in it replaced, whole words of three letters or more, in any case."""
        if self._inside is not None:
            text = self._inside.sub(lambda found: self._known[found[0]], text)
        if self._phrase is not None:
            text = self._phrase.sub(lambda found: self._phrases.get(found[0].casefold(), found[0]), text)
        if self._single:
            text = _WORD.sub(lambda found: self._single.get(found[0].casefold(), found[0]), text)
        return text

    def message_id(self, msg_id: str) -> str:
        """Another id for the same message."""
        return blake2b(msg_id.encode("utf-8", "surrogatepass"), key=self._salt, digest_size=16).hexdigest()

    def payload(self, payload: bytes, msg_id: str | None = None) -> bytes:
        """The payload with ids and names replaced; as it is where there are none, or where it is no text."""
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            return payload
        try:
            data, twice = loads(text)
        except (ValueError, RecursionError):
            return self.text(text).encode()
        try:
            new = self.value(data, msg_id)
        except RecursionError:
            return self.text(text).encode()
        return payload if not twice and new == data and repr(new) == repr(data) else json.dumps(new).encode()

    def value(self, data: Any, msg_id: str | None = None, *, of_agent: bool = False) -> Any:
        """The same for a value that JSON can hold; `of_agent` where it stands under one of `AGENT_KEYS`."""
        if isinstance(data, dict):
            found: dict[str, Any] = {}
            for key, item in data.items():
                named = self.text(self._segment(key))
                while named in found:  # names that differ in case alone have one pseudonym
                    named += "_"
                if isinstance(item, str) and (key in _MESSAGE_KEYS or (key == "id" and item == msg_id)):
                    found[named] = self.message_id(item)
                else:
                    agents = key in AGENT_KEYS or (of_agent and key in _ID_KEYS)
                    found[named] = self.value(item, msg_id, of_agent=agents)
            return found
        if isinstance(data, list):
            return [self.value(item, msg_id, of_agent=of_agent) for item in data]
        if isinstance(data, str):
            return self._string(data, msg_id, of_agent)
        if of_agent and isinstance(data, int):
            return self.agent(data)
        return data

    def _string(self, text: str, msg_id: str | None, of_agent: bool) -> str:
        if text in self._known:
            return self._known[text]
        if text.lstrip()[:1] in ("{", "[", '"'):
            try:
                inner, twice = loads(text)
                new = self.value(inner, msg_id, of_agent=of_agent)
                return text if not twice and new == inner and repr(new) == repr(inner) else json.dumps(new)
            except (ValueError, RecursionError):
                pass
        return str(self.agent(text)) if of_agent else self.text(text)

    def _number(self, number: int) -> int:
        found = self._numbers.get(number)
        if found is None:
            found = self._numbers[number] = self._fresh()
        return found

    def _name(self, text: str) -> str:
        found = self._names.get(text)
        if found is None:
            found = self._names[text] = f"agent-{self._fresh()}"
        return found

    def _fresh(self) -> int:
        """A number that nobody has."""
        while True:
            if len(self._taken) * 2 > self._size:
                self._size *= 10
            number = self._draw.randrange(1, self._size)
            if number not in self._taken:
                self._taken.add(number)
                return number
