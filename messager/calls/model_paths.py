"""Requests that are calls to models: recognised by their paths, whatever the host, as gateways and stubs have any.

Others are recorded if their host is named (`--also HOST`), or all of them (`--all-http`).
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit

_PATHS = re.compile(
    "|".join(
        (
            # OpenAI, and the many that speak like it; Azure has the deployment in its path, before the same ends.
            r".*/(?:chat/)?completions",
            r"(?:.*/(?:v\d\w*|openai|deployments/[^/]+))?/(?:responses|responses/compact|moderations|rerank)",
            r".*/(?:embeddings|images/(?:generations|edits|variations)|audio/(?:speech|transcriptions|translations))",
            # Anthropic, also behind gateways and at Vertex (rawPredict).
            r".*/v1/(?:messages|messages/count_tokens|complete)",
            # Google
            r".*:(?:generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents)",
            r".*:(?:predict|rawPredict|streamRawPredict|generateImages|generateAnswer)",
            # Ollama
            r".*/api/(?:chat|generate|embed|embeddings)",
            # Bedrock
            r"/model/[^/]+/(?:invoke|invoke-with-response-stream|converse|converse-stream)",
            # Cohere
            r".*/v[12]/(?:chat|generate|embed|rerank|classify)",
            # Text generation inference of Hugging Face
            r"/(?:generate|generate_stream)",
        )
    )
)
_METADATA_HOSTS = {"metadata.google.internal", "metadata"}


class ModelCalls:
    """Selection of requests, and the hosts of those that it leaves out."""

    def __init__(self, also: Iterable[str] = (), *, all_http: bool = False) -> None:
        """`also` names further hosts, each with a port or for all ports."""
        self._also = {host.lower() for host in also}
        self._all = all_http
        self.others: Counter[str] = Counter()
        """Requests that are not selected, by `host` or `host:port`: a reproduction refuses them."""

    def __call__(self, method: str, url: str) -> bool:
        """Return whether a request is selected. Link-local hosts, which give a machine its credentials, never are."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme not in ("http", "https") or is_link_local(host):
            return False
        if self._all or host in self._also or _with_port(parts) in self._also:
            return True
        if method.upper() == "POST" and _PATHS.fullmatch(parts.path.rstrip("/")) is not None:
            return True
        self.others[_with_port(parts)] += 1
        return False


def _with_port(parts: SplitResult) -> str:
    host = parts.hostname or ""
    return host if parts.port is None else f"{host}:{parts.port}"


def is_link_local(host: str) -> bool:
    """Return whether a host is the network of this machine alone, such as a cloud's service of credentials."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_link_local
    except ValueError:
        return host.lower() in _METADATA_HOSTS
