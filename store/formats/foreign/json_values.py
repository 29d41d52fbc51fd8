"""The values of a JSON file, one after another, in the memory of the largest."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from ... import limits
from ...json_text import is_crowded
from ..fields import InvalidEntry
from ..input_file import InputFile

_CHUNK = 1024 * 1024
_SPACE = re.compile(r"[ \t\r\n]*")


class JsonFile(InputFile):
    """A JSON file: an array, or values one after another (JSON Lines, or over several lines each)."""

    def values(self) -> Iterator[Any]:
        """Yield the elements of the array that the file is, or else its values. `line_number` is that of the value."""
        self._text, self._at, self._ended = "", 0, False
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._number = 1
        in_array = self._peek() == "["
        if in_array:
            self._step()
        first = True
        while char := self._peek():
            if in_array and char == "]" and first:
                break
            begun = self._number
            value = self._value()
            ended, self._number = self._number, begun
            yield value
            self._number, first = ended, False
            if in_array:
                if self._peek() != ",":
                    break
                self._step()
        if in_array:
            if self._peek() != "]":
                raise InvalidEntry("not JSON (no , or ] after an element of the array)")
            self._step()
            if self._peek():
                raise InvalidEntry("not JSON (there is more behind the array)")

    def _value(self) -> Any:
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except RecursionError:
                raise InvalidEntry("nested too deep") from None
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos >= len(self._text) - 16
                if self._ended or not cut:
                    self._number += self._text.count("\n", self._at, error.pos)
                    raise InvalidEntry(f"not JSON ({error.msg})") from None
            except ValueError:
                raise InvalidEntry("an integer of thousands of digits") from None
            else:
                if self._ended or self._text[end - 1] in '}]"' or self._text[end : end + 1] not in _IN_NUMBER:
                    self._advance(end)
                    return value
            self._fill()

    def _peek(self) -> str:
        """Return the next character that is not white space; nothing at the end."""
        while True:
            self._advance(_SPACE.match(self._text, self._at).end())  # type: ignore[union-attr]
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._fill()

    def _step(self) -> None:
        self._advance(self._at + 1)

    def _advance(self, end: int) -> None:
        self._number += self._text.count("\n", self._at, end)
        self._at = end

    def _fill(self) -> None:
        """Read as much as is kept, so that a long value costs a multiple of its length."""
        kept = self._text[self._at :]
        if len(kept) > limits.MOST_CHARACTERS:
            raise InvalidEntry(f"longer than {limits.MOST_CHARACTERS:,} characters")
        if len(kept) > limits.MOST_PARTS and is_crowded(kept.encode("utf-8", "surrogatepass")):
            raise InvalidEntry(f"made of more than {limits.MOST_PARTS:,} values")
        read = self._file.read(min(max(_CHUNK, len(kept)), limits.MOST_CHARACTERS + 1 - len(kept)))
        self._ended = not read
        try:
            self._text, self._at = kept + self._decoder.decode(read, final=not read), 0
        except UnicodeDecodeError:
            raise InvalidEntry("this value, or one after it, is not UTF-8") from None


_DECODER = json.JSONDecoder()
_IN_NUMBER = ("", ".", "e", "E")
"""What can follow the first part of a number that the end of the text cuts off."""
