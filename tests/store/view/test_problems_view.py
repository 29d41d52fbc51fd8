"""Problems on the page, what its head says of the run, and what its foot says of the log."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urldefrag

from playwright.async_api import Locator, Page, expect

from examples.town import GAP, START, S
from messager_store import EventLog, NewEvent, Selection
from messager_store.queries.overview import overview
from messager_store.queries.problems import problems
from messager_store.view.report import report
from tests.store.view.conftest import Reports
from tests.store.view.pages import OpenReport, go, ready, show
from tests.support import until
from tests.support.browser import PageOpener
from tests.support.logs import filled, sent


def state(page: Page) -> dict[str, list[str]]:
    """Return the state in the URL."""
    return parse_qs(urldefrag(page.url)[1])


async def opens(page: Page, wanted: dict[str, str]) -> None:
    """Return when the URL has this state and no more."""
    await until(lambda: state(page) == {key: [value] for key, value in wanted.items()})


def problem(page: Page, kind: str, number: int = 0) -> Locator:
    """Return the way to the place of a problem."""
    return page.get_by_role("region", name=kind).get_by_role("listitem").nth(number).get_by_role("button").first


async def small(folder: Path, opener: PageOpener, talk: list[NewEvent], selection: Selection | None = None) -> Page:
    """Return the page of a recording without problems."""
    async with EventLog.open(str(folder / "small.db")) as log:
        await filled(log, talk, "small")
        await report(log, "small", folder / "small.html", selection)
    return await ready(await opener((folder / "small.html").as_uri()))


async def test_problems_are_those_of_the_recording(open_report: OpenReport, reports: Reports) -> None:
    page = await open_report("town")
    panel = await show(page, "Problems")
    async with EventLog.open(str(await reports.store("town"))) as log:
        found = await problems(log, await log.experiment("town"))
    for kind in found.counts:
        group = panel.get_by_role("region", name=str(kind), exact=True)
        await expect(group.get_by_role("heading")).to_contain_text(f"{found.number(kind)} {kind}")
    text = await panel.inner_text()
    assert all(one.text in text for one in found.details if one.kind not in ("arrived twice",))
    await page.get_by_role("button", name="38 problems: show").click()
    await expect(page.get_by_role("heading", name="9 never arrived")).to_be_visible()
    await page.get_by_role("list", name="kinds of problems").get_by_role("button", name="1 unclean end").click()
    await expect(page.get_by_role("heading", name="1 unclean end")).to_be_focused()
    note = page.get_by_text("Search and conditions do not apply here")
    await expect(note).to_be_hidden()
    await page.get_by_role("searchbox").fill("fire")
    await expect(note).to_be_visible()


async def test_a_problem_leads_to_its_message_and_keeps_a_filter_that_it_fits(open_report: OpenReport) -> None:
    page = await open_report("town", "view=problems&agent=%22doctor%22")
    await problem(page, "late").click()
    await until(lambda: state(page).get("view") == ["read"])
    at = state(page)["at"][0]
    await opens(page, {"view": "read", "at": at})
    await expect(page.get_by_role("tabpanel", name="Read")).to_contain_text(at)
    await go(page, "view=problems&agent=%22ferryman%22")
    await problem(page, "never arrived").click()
    await until(lambda: "at" in state(page))
    assert state(page)["agent"] == ['"ferryman"']


async def test_more_problems_of_a_kind_are_shown_on_demand(open_report: OpenReport) -> None:
    page = await open_report("town", "view=problems")
    group = page.get_by_role("region", name="arrived twice")
    await expect(group.get_by_role("listitem")).to_have_count(10)
    await group.get_by_role("button", name="Show 10 more").press("Enter")
    await expect(group.get_by_role("listitem")).to_have_count(20)
    await expect(group.get_by_role("listitem").nth(10).get_by_role("button").first).to_be_focused()
    await expect(group.get_by_role("button", name="more")).to_be_hidden()


async def test_problems_are_listed_by_time_and_the_link_keeps_that(open_report: OpenReport) -> None:
    page = await open_report("town")
    panel = await show(page, "Problems")
    await panel.get_by_role("button", name="By time").click()
    await expect(panel.get_by_role("button", name="By time")).to_be_focused()
    await opens(page, {"view": "problems", "sort": "time"})
    region = panel.get_by_role("region", name="problems by time")
    await expect(region.get_by_role("listitem")).to_have_count(38)
    times = await region.locator("time").all_inner_texts()
    assert times == sorted(times) and len(set(times)) > 10
    await expect(region.get_by_role("listitem").filter(has_text="gap")).not_to_have_count(0)


async def test_a_problem_is_shown_in_the_sequence_with_the_messages_around_it(open_report: OpenReport) -> None:
    page = await open_report("town", "view=problems")
    group = page.get_by_role("region", name="blocked")
    await group.get_by_role("button", name=re.compile("show in sequence: blocked")).first.click()
    await until(lambda: state(page).get("view") == ["sequence"])
    found = {key: value[0] for key, value in state(page).items()}
    at = int(found["at"].split(":")[0])
    assert START < int(found["since"]) < at < int(found["until"]) < START + 240 * S


async def test_a_gap_and_an_unclean_end_lead_to_their_time(open_report: OpenReport) -> None:
    page = await open_report("town", "view=problems")
    await problem(page, "gap").click()
    begin, end = (START + second * S for second in GAP)
    await until(lambda: "since" in state(page))
    assert begin - 5 * S < int(state(page)["since"][0]) < begin
    assert end < int(state(page)["until"][0]) < end + 5 * S
    await show(page, "Problems")
    await problem(page, "unclean end").click()
    await until(lambda: "until" not in state(page))
    assert START < int(state(page)["since"][0]) < START + 240 * S


async def test_a_page_says_why_it_has_no_problems(open_page: PageOpener, tmp_path: Path) -> None:
    heard = [sent(ts, b"x", "c")._replace(kind="received") for ts in (1, 2)]
    for name, events, selection, text in (
        ("unknown", heard, None, "could not be examined"),
        ("limited", [sent(0), sent(S)], Selection(limit=1), "were not searched"),
    ):
        (tmp_path / name).mkdir()
        page = await small(tmp_path / name, open_page, events, selection)
        await expect(await show(page, "Problems")).to_contain_text(text)


async def test_a_recording_without_problems_is_said_to_have_none(open_page: PageOpener, tmp_path: Path) -> None:
    async with EventLog.open(str(tmp_path / "fine.db")) as log:
        of = await log.create_experiment("fine")
        sender = await log.register(of, role="messager")
        listener = await log.register(of, role="messager", patterns=["c"])
        await log.append(sender, [sent(START, b"hello")])
        await log.append(listener, [sent(START + 1000, b"hello")._replace(kind="received")])
        await report(log, "fine", tmp_path / "fine.html")
    page = await ready(await open_page((tmp_path / "fine.html").as_uri()))
    await expect(page.get_by_role("button", name="no problems: show")).to_be_visible()
    await expect(await show(page, "Problems")).to_contain_text("No problems were found: every message arrived")


async def test_the_head_tells_the_run_in_one_sentence(open_report: OpenReport) -> None:
    page = await open_report("town")
    head = page.get_by_role("banner")
    sentence = "7 agents exchanged 100 messages on 8 channels in 3 min 39 s; doctor spoke most (23)."
    await expect(head).to_contain_text(sentence)
    await expect(head.get_by_role("heading")).to_have_text("a fire at the mill")
    await expect(page).to_have_title("a fire at the mill - messager")
    for text in ("town", "made-up", "open", "2026-03-01 08:00:00 – 08:03:39 UTC"):
        await expect(head.get_by_text(text, exact=True)).to_be_visible()
    await head.get_by_role("button", name="fire").click()
    await opens(page, {"since": str(START + 60 * S), "until": str(START + 150 * S)})
    await go(page, "view=read")
    await head.get_by_role("button", name="details").click()
    await expect(head).to_contain_text("doctor 23 sent, 21 received")
    await expect(head).to_contain_text("3: messager, unclean")
    await head.get_by_role("button", name="doctor", exact=True).first.click()
    await opens(page, {"view": "read", "agent": '"doctor"'})


async def test_the_foot_says_whether_the_log_is_verified(
    open_report: OpenReport, open_page: PageOpener, tmp_path: Path
) -> None:
    foot = (await open_report("town")).get_by_role("contentinfo")
    await expect(foot).to_contain_text("NOT verified: recorder 3: ended uncleanly")
    await expect(foot).to_contain_text("Nothing on this page leaves your machine.")
    page = await small(tmp_path, open_page, [sent(0, b"hello"), sent(S, b"hello")])
    await expect(page.get_by_role("contentinfo")).to_contain_text("verified: 2 events, chain intact")
    await expect(page.get_by_role("contentinfo")).not_to_contain_text("NOT")


async def test_the_chain_hash_is_copied(open_report: OpenReport, reports: Reports) -> None:
    page = await open_report("town", permissions=["clipboard-read", "clipboard-write"])
    await page.get_by_role("button", name="copy the chain hash").click()
    await expect(page.get_by_role("button", name="copy the chain hash")).to_have_text("copied")
    async with EventLog.open(str(await reports.store("town"))) as log:
        head = (await overview(log, await log.experiment("town")))["head"]
    assert await page.evaluate("navigator.clipboard.readText()") == head
