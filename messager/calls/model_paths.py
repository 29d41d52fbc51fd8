"""Requests that are calls to models, by their paths."""

from __future__ import annotations

import re

_PATHS = re.compile(
    r"/(?:chat/completions|completions|responses|embeddings|images/generations|audio/(?:speech|transcriptions)|rerank)"
    r"|/v1/messages(?:/count_tokens)?|/v1/complete"  # Anthropic
    r"|:(?:generateContent|streamGenerateContent|embedContent|batchEmbedContents|countTokens|predict)"  # Google
    r"|/api/(?:chat|generate|embed|embeddings)"  # Ollama
    r"|/model/[^/]+/(?:invoke|invoke-with-response-stream|converse|converse-stream)"  # Bedrock
)


def is_model_call(method: str, path: str) -> bool:
    """Return whether a request is one to a model."""
    found = _PATHS.search(path)
    return method == "POST" and found is not None and found.end() == len(path.rstrip("/"))
