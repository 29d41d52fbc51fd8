"""Pseudonyms for agents: constant for an agent within one export, different in the next.

Pseudonyms are drawn at random and the mapping is not stored, so that they cannot be reversed from the file alone, as
hashes of guessable ids or numbers in order of appearance could be.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from messager import channels

from ..json_text import written
from ..privacy.blanking import BLANK
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
"""Keys of payloads whose values are ids or names of agents."""
_ID_KEYS = frozenset(["id", "uid", "uuid", "key"])
"""Keys of an agent's id in an object that is the value of one of `AGENT_KEYS`."""
_MESSAGE_KEYS = frozenset(
    ["msg_id", "message_id", "reply_to", "in_reply_to", "replyTo", "inReplyTo", "parent_id", "correlation_id"]
)
"""Keys of payloads whose values are ids of messages."""
_SEGMENT = re.compile(r"[^:./]+")
_SPACELESS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\uffef\U00020000-\U0003ffff]")
"""Characters of scripts without spaces between words."""
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}", re.A)
_WORD = re.compile(r"\w+")
_WILDCARDS = frozenset("*?[+#")
_LEAST = 3
"""Minimum length of names that are replaced inside texts; shorter ones would match unrelated text."""


class Pseudonyms:
    """Replaces ids and names of agents. `known` are the ids of the experiment; `draw` is the random source."""

    def __init__(self, known: Iterable[Any], draw: random.Random | None = None) -> None:
        self._draw = draw or random.SystemRandom()
        self._salt = self._draw.randbytes(16)
        self._numbers: dict[int, int] = {}
        self._names: dict[str, str] = {}
        self._experiments: dict[str, str] = {}
        self._taken: set[int] = set()
        self._size = 1_000_000
        known = list(known)
        texts = [agent for agent in known if isinstance(agent, str) and not _NUMBER.fullmatch(agent)]
        for agent in known:
            if isinstance(agent, int) and not isinstance(agent, bool):
                self._taken.add(agent)  # a pseudonym is never the id of another agent
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
        """Return the pseudonym, of the same JSON type: 7 and "7" get the same number.

        Booleans, null and redacted values are no ids.
        """
        if agent is None or isinstance(agent, bool) or agent == BLANK:
            return agent
        if isinstance(agent, int):
            return self._number(agent)
        if isinstance(agent, str):
            if _NUMBER.fullmatch(agent):
                return str(self._number(int(agent)))
            return self._name(agent) if agent else agent
        return self._name(json.dumps(agent, sort_keys=True))

    def experiment(self, exp_id: str) -> str:
        """Return the pseudonym of an experiment; a pattern with wildcards stays."""
        if set(exp_id) & _WILDCARDS:
            return exp_id
        found = self._experiments.get(exp_id)
        if found is None:
            found = self._experiments[exp_id] = f"exp-{self._fresh()}"
        return found

    def channel(self, channel: str) -> str:
        """Return the channel with experiment and agent replaced; elsewhere in it, known ids and names are replaced."""
        parsed = channels.parse(channel)
        if parsed is None:
            return self._segments(channel)
        agent = parsed.agent_id
        if agent is None:
            begin = len("exps:") + len(parsed.exp_id)
            return f"{channel[:5]}{self.experiment(parsed.exp_id)}{self._segments(channel[begin:])}"
        if not (isinstance(agent, str) and set(agent) & _WILDCARDS):
            channel = channels.with_agent(channel, self.agent(agent))
        return channels.with_experiment(self.text(channel), self.experiment(parsed.exp_id))

    def _segments(self, text: str) -> str:
        return self.text(_SEGMENT.sub(lambda found: self._segment(found[0]), text))

    def _segment(self, text: str) -> str:
        """Return the pseudonym of a text that is a known id; any other text unchanged."""
        return str(self.agent(text)) if text in self._known or text in self._ids else text

    def text(self, text: str) -> str:
        """Return a text with known names replaced: whole words of three letters or more, case-insensitive."""
        if self._inside is not None:
            text = self._inside.sub(lambda found: self._known[found[0]], text)
        if self._phrase is not None:
            text = self._phrase.sub(lambda found: self._phrases.get(found[0].casefold(), found[0]), text)
        if self._single:
            text = _WORD.sub(lambda found: self._single.get(found[0].casefold(), found[0]), text)
        return text

    def message_id(self, msg_id: str) -> str:
        """Return the pseudonym of a message id."""
        return blake2b(msg_id.encode("utf-8", "surrogatepass"), key=self._salt, digest_size=16).hexdigest()

    def payload(self, payload: bytes, msg_id: str | None = None) -> bytes:
        """Return the payload with ids and names replaced; unchanged if there are none or it is not text."""
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            return payload
        try:
            data, duplicate = loads(text)
        except (ValueError, RecursionError):
            return self.text(text).encode()
        try:
            new = self.value(data, msg_id)
        except RecursionError:
            return self.text(text).encode()
        return (
            payload if not duplicate and new == data and repr(new) == repr(data) else written(new, ascii=True).encode()
        )

    def value(self, data: Any, msg_id: str | None = None, *, of_agent: bool = False) -> Any:
        """Return a decoded JSON value with ids and names replaced; `of_agent` if it belongs to one of `AGENT_KEYS`."""
        if isinstance(data, dict):
            found: dict[str, Any] = {}
            for key, item in data.items():
                named = self.text(self._segment(key))
                while named in found:  # names that differ only in case have the same pseudonym
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
                inner, duplicate = loads(text)
                new = self.value(inner, msg_id, of_agent=of_agent)
                return text if not duplicate and new == inner and repr(new) == repr(inner) else written(new, ascii=True)
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
        """Return an unused number."""
        while True:
            if len(self._taken) * 2 > self._size:
                self._size *= 10
            number = self._draw.randrange(1, self._size)
            if number not in self._taken:
                self._taken.add(number)
                return number
