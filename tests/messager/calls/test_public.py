"""Secrets of a call do not reach what is stored of it."""

from messager.calls import Answer, Call
from messager.calls.public import public_answer, public_call

SECRET = "s3cr3t"
CALL = Call(
    "POST",
    f"https://me:{SECRET}@models.test/v1/models/g:generateContent?key={SECRET}&alt=sse&X-Amz-Signature={SECRET}",
    [
        ("Authorization", f"Bearer {SECRET}"),
        ("x-api-key", SECRET),
        ("Cookie", SECRET),
        ("x-invented-by-somebody", SECRET),
        ("Content-Type", "application/json"),
        ("x-stainless-retry-count", "1"),
    ],
    b"{}",
    "httpx",
)


def test_headers_are_kept_by_an_allow_list_and_credentials_in_the_url_are_masked() -> None:
    public = public_call(CALL)
    assert SECRET not in repr(public)
    assert public.headers == [("content-type", "application/json"), ("x-stainless-retry-count", "1")]
    assert public.url.endswith("?key=***&alt=sse&X-Amz-Signature=***") and "models.test/v1/models/g" in public.url


def test_answer_keeps_what_a_program_needs_to_handle_it() -> None:
    headers = [("Set-Cookie", SECRET), ("Retry-After", "3"), ("Location", f"https://a.test/?token={SECRET}")]
    answer = Answer(307, headers, [b"body"], [1], ("ReadError", f"https://a.test/?key={SECRET}"), True)
    public = public_answer(answer)
    assert SECRET not in repr(public)
    assert public.headers == [("retry-after", "3"), ("location", "https://a.test/?token=***")]
    assert (public.status, public.body, public.unread) == (307, b"body", True)
