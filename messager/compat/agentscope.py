"""A `Msg` as a dict that AgentScope's own `Msg` classes read: those of 0.1 (0.1.1 to 0.1.6), 1.x and 2.x.

Source of the contract: `Msg.from_dict` of AgentScope 0.1 and 1.x, and `Msg.model_validate` of 2.x.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import AnyUrl, TypeAdapter, ValidationError

from ..msg import Msg, as_dict

Version = Literal["0.1", "1", "2"]
Known = Mapping[str, Mapping[str, Callable[[Any], bool]]]
"""Types of content blocks, with the required fields of each and a check for each field."""

_CLASS = {"__module__": "agentscope.message.msg", "__name__": "Msg"}
_MEDIA_1 = ("image", "audio", "video")
_URL = TypeAdapter(AnyUrl)


def to_agentscope(msg: Msg, version: Version | None = None) -> dict[str, Any]:
    """Return a dict that AgentScope's `Msg` of this version accepts; without a version, one that all of them accept.

    - "0.1": the fields of `Msg` under AgentScope's module name. A list of anything but blocks becomes JSON text, as
      0.1.3 and later refuse it; other content stays as it is.
    - "1": text stays text, urls become blocks, other content becomes JSON text.
    - "2": text, urls and other content become blocks, and `timestamp` becomes `created_at`.
    - None: the fields of "0.1", with text blocks as content. 1.x and 2.x ignore its `url`, 2.x its `timestamp`.

    A block of an unknown type, or without a required field, becomes a text block with its JSON. Metadata other
    than a dict goes into one under the key `metadata`, except in "0.1". `extra` is written in "1" and "2". Values
    without a JSON form become text. Raises `ValueError` for an unknown version.
    """
    if version not in _WRITERS:
        raise ValueError(f"unknown version of AgentScope: {version!r}. Use '0.1', '1', '2' or None.")
    form = _form_0_1 if version == "0.1" else _form
    return _WRITERS[version](_plain(_fields(msg), form), _plain(msg.extra, form))


def _fields(msg: Msg) -> dict[str, Any]:
    return {
        "id": str(msg.id),
        "name": str(msg.name),
        "role": msg.role,
        "content": msg.content,
        "url": msg.url,
        "metadata": msg.metadata,
        "timestamp": str(msg.timestamp),
    }


def _plain(fields: dict[str, Any], form: Callable[[object], Any]) -> dict[str, Any]:
    """Return a copy of JSON types. Two lone surrogates that make a pair stay two characters, as in AgentScope."""
    copy: dict[str, Any] = json.loads(json.dumps(fields, ensure_ascii=False, default=form))
    return copy


def _form(value: object) -> Any:
    """Return the JSON form of an object that `json` cannot encode."""
    message = as_dict(value)
    return str(value) if message is None else message


def _form_0_1(value: object) -> Any:
    return {**_CLASS, **_fields(value)} if isinstance(value, Msg) else _form(value)


def _for_0_1(fields: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    content = fields["content"]
    if isinstance(content, list):
        content = _known(content, _BLOCKS_0_1) if _are_blocks(content) else _text(content)
    return {**_CLASS, **fields, "content": content}


def _for_1(fields: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    content, urls = fields["content"], _urls(fields.pop("url"))
    if urls or _are_blocks(content):
        content = _known(_blocks(content), _BLOCKS_1) + [_media_1(url) for url in urls]
    return {**extra, **fields, "content": content if isinstance(content, list) else _text(content)} | _metadata(fields)


def _for_2(fields: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    blocks = _blocks(fields["content"]) + [_media_2(url) for url in _urls(fields.pop("url"))]
    known = {kind: _BLOCKS_2[kind] for kind in _ROLES_2.get(fields["role"], _BLOCKS_2)}
    created_at = fields.pop("timestamp").replace(" ", "T", 1)
    return {**extra, **fields, "content": _known(blocks, known), "created_at": created_at} | _metadata(fields)


def _for_all(fields: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    return {**_CLASS, **fields, "content": _known(_blocks(fields["content"]), _TEXT)} | _metadata(fields)


_WRITERS = {"0.1": _for_0_1, "1": _for_1, "2": _for_2, None: _for_all}


def _metadata(fields: dict[str, Any]) -> dict[str, Any]:
    value = fields["metadata"]
    return {"metadata": value if isinstance(value, dict) else {} if value is None else {"metadata": value}}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _text_block(content: Any) -> dict[str, Any]:
    return {"type": "text", "text": _text(content)}


def _are_blocks(content: Any) -> bool:
    return isinstance(content, list) and all(
        isinstance(one, dict) and isinstance(one.get("type"), str) for one in content
    )


def _blocks(content: Any) -> list[dict[str, Any]]:
    return content if _are_blocks(content) else [_text_block(content)]


def _known(blocks: list[dict[str, Any]], known: Known) -> list[dict[str, Any]]:
    """Return the blocks, with text in place of those that are not known."""
    return [block if _fits(block, known) else _text_block(block) for block in blocks]


def _fits(block: dict[str, Any], known: Known) -> bool:
    needed = known.get(block["type"])
    return needed is not None and all(field in block and check(block[field]) for field, check in needed.items())


def _urls(url: Any) -> list[str]:
    return [] if url is None else [str(one) for one in url] if isinstance(url, list) else [str(url)]


def _media_1(url: str) -> dict[str, Any]:
    kind = (mimetypes.guess_type(url)[0] or "").partition("/")[0]
    return {"type": kind, "source": {"type": "url", "url": url}} if kind in _MEDIA_1 else _text_block(url)


def _media_2(url: str) -> dict[str, Any]:
    media_type = mimetypes.guess_type(url)[0] or "application/octet-stream"
    return (
        {"type": "data", "source": {"type": "url", "url": url, "media_type": media_type}}
        if _is_url(url)
        else _text_block(url)
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _is_url(value: Any) -> bool:
    try:
        _URL.validate_python(value)
    except ValidationError:
        return False
    return True


def _is_source_2(value: Any) -> bool:
    checks = {"base64": ("data", _is_text), "url": ("url", _is_url)}
    if not isinstance(value, dict) or value.get("type") not in checks or not _is_text(value.get("media_type")):
        return False
    field, check = checks[value["type"]]
    return check(value.get(field))


def _is_output(value: Any) -> bool:
    return isinstance(value, str | list)


def _is_output_2(value: Any) -> bool:
    if isinstance(value, list):
        return _are_blocks(value) and all(_fits(block, {**_TEXT, **_DATA_2}) for block in value)
    return _is_text(value)


_TEXT: Known = {"text": {"text": _is_text}}
_TOOLS: Known = {
    "tool_use": {"id": _is_text, "name": _is_text, "input": _is_dict},
    "tool_result": {"id": _is_text, "name": _is_text, "output": _is_output},
}
_BLOCKS_0_1: Known = {**_TEXT, **_TOOLS, **{kind: {"url": _is_text} for kind in (*_MEDIA_1, "file")}}
_BLOCKS_1: Known = {
    **_TEXT,
    **_TOOLS,
    "thinking": {"thinking": _is_text},
    **{kind: {"source": _is_dict} for kind in _MEDIA_1},
}
_DATA_2: Known = {"data": {"source": _is_source_2}}
_BLOCKS_2: Known = {
    **_TEXT,
    **_DATA_2,
    "thinking": {"thinking": _is_text},
    "hint": {"hint": _is_text},
    "tool_call": {"id": _is_text, "name": _is_text, "input": _is_text},
    "tool_result": {"id": _is_text, "name": _is_text, "output": _is_output_2},
}
_ROLES_2 = {"system": ("text",), "user": ("text", "data")}
"""The types of blocks that 2.x accepts from a role; from an assistant, all of them."""
