"""Calls to models are told from other requests by their paths."""

import pytest

from messager.calls.model_paths import ModelCalls

CALLS = [
    "https://api.openai.com/v1/chat/completions",
    "https://api.openai.com/v1/responses",
    "https://api.openai.com/v1/embeddings",
    "http://127.0.0.1:8000/v1/completions",
    "http://gateway.test/responses",
    "https://x.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=2024-10-21",
    "https://x.openai.azure.com/openai/v1/responses",
    "https://api.anthropic.com/v1/messages",
    "https://api.anthropic.com/v1/messages?beta=true",
    "https://generativelanguage.googleapis.com/v1beta/models/gemini:generateContent",
    "https://generativelanguage.googleapis.com/v1beta/models/gemini:streamGenerateContent?alt=sse",
    "https://x-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/anthropic/models/c:streamRawPredict",
    "http://localhost:11434/api/chat",
    "http://localhost:11434/api/generate",
    "http://localhost:11434/api/embed",
    "https://bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.c%3A0/invoke",
    "https://bedrock-runtime.us-east-1.amazonaws.com/model/m/converse-stream",
    "https://api.cohere.com/v2/chat",
    "https://openrouter.ai/api/v1/chat/completions",
]
OTHERS = [
    "https://discord.com/api/v9/channels/1/messages",
    "https://forms.googleapis.com/v1/forms/1/answers",
    "https://api.search.test/search?q=completions",
    "https://example.test/",
]


@pytest.mark.parametrize("url", CALLS)
def test_call_to_a_model_is_selected(url: str) -> None:
    assert ModelCalls()("POST", url)


@pytest.mark.parametrize("url", OTHERS)
def test_other_request_is_left_out_and_its_host_noted(url: str) -> None:
    calls = ModelCalls()
    assert not calls("POST", url)
    assert list(calls.others) == [url.split("/")[2]]


def test_host_may_be_named_with_or_without_its_port() -> None:
    calls = ModelCalls(["search.test", "weather.test:8080"])
    urls = ["https://search.test/q", "http://search.test:1/q", "http://weather.test:8080/", "http://weather.test/"]
    assert [calls("GET", url) for url in urls] == [True, True, True, False]


def test_all_requests_may_be_selected_but_never_those_to_link_local_hosts() -> None:
    calls = ModelCalls(["169.254.169.254"], all_http=True)
    assert calls("GET", "http://example.test/")
    for host in ("169.254.169.254", "[fe80::1]", "metadata.google.internal"):
        assert not calls("PUT", f"http://{host}/latest/api/token")
    assert not calls.others
