"""Decoders of content encodings, chunk by chunk: gzip, deflate, br and zstd, as far as the process has libraries."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from typing import Any

Decode = Callable[[bytes], bytes]


def decoder(encoding: str) -> Decode | None:
    """Return a function that decodes one chunk after the other; None for an encoding that cannot be decoded.

    The function raises an exception of the library if the data are broken.
    """
    names = [name.strip().lower() for name in encoding.split(",")]
    decoders = [_decoder(name) for name in reversed(names) if name not in ("", "identity")]
    known = [decode for decode in decoders if decode is not None]
    if len(known) < len(decoders):
        return None

    def decode_all(data: bytes) -> bytes:
        for decode in known:
            data = decode(data)
        return data

    return decode_all


def _decoder(name: str) -> Decode | None:
    if name in ("gzip", "x-gzip"):
        return _Zlib(zlib.MAX_WBITS | 16)
    if name == "deflate":
        return _Zlib(zlib.MAX_WBITS)
    if name == "br":
        library = _library("brotli", "brotlicffi")
        return None if library is None else _brotli(library.Decompressor())
    if name == "zstd":
        if (library := _library("compression.zstd", "backports.zstd")) is not None:
            return _no_empty(library.ZstdDecompressor().decompress)
        library = _library("zstandard")
        return None if library is None else _no_empty(library.ZstdDecompressor().decompressobj().decompress)
    return None


class _Zlib:
    """Decoder of gzip, which may have several members, and of deflate, which some servers send without a header."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._object = zlib.decompressobj(bits)
        self._begun = False

    def __call__(self, data: bytes) -> bytes:
        decoded = self._first(data) if not self._begun else self._object.decompress(data)
        self._begun = self._begun or bool(data)
        while self._object.eof and (rest := self._object.unused_data):
            self._object = zlib.decompressobj(self._bits)
            decoded += self._object.decompress(rest)
        return decoded

    def _first(self, data: bytes) -> bytes:
        try:
            return self._object.decompress(data)
        except zlib.error:
            if self._bits != zlib.MAX_WBITS:
                raise
            self._bits = -zlib.MAX_WBITS
            self._object = zlib.decompressobj(self._bits)
            return self._object.decompress(data)


def _brotli(decompressor: Any) -> Decode:
    return _no_empty(getattr(decompressor, "process", None) or decompressor.decompress)


def _no_empty(decode: Decode) -> Decode:
    return lambda data: decode(data) if data else b""


def _library(*names: str) -> Any:
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            pass
    return None
