"""Text of a failure: the first divergence of the live agents from the recording, and how to see the rest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from messager_store.json_path import general_path
from messager_store.lockstep.divergence_text import key_differences
from messager_store.text import plural, safe

from .agent_state import Unawaited
from .difference_text import shortened, side_by_side, whole_text
from .recording_paths import Context

if TYPE_CHECKING:
    from messager_store.lockstep.report import CastReport, Divergence, PartReport

_NARROWEST, _WIDEST = 60, 160
_MARGIN = 4
"""Columns that pytest and the indentation take."""
_LABEL = 10


def failure(
    report: CastReport,
    lines: Mapping[tuple[int, int], int],
    context: Context,
    *,
    returned: Collection[str] = (),
    why_late: Callable[[Divergence], str] = lambda divergence: "it said nothing for so long",
    task: Unawaited | None = None,
) -> str:
    """Return the text of a failed replay.

    `lines` has the number of the line of each event of the recording, `returned` the labels of the agents that had
    returned before the first divergence. `why_late` returns why a message was given up that was said later. `task` is
    an exception that nothing awaited.
    """
    first = report.first
    parts = [_headline(report, first, context, returned, why_late, task)]
    if first is not None:
        parts += ["", *_divergence(first, lines, context, report)]
    elif task is not None:
        heard = None if task.state is None else task.state.heard
        shown = "nothing before" if heard is None else _shown(heard, context)
        parts += ["", _row("recording", context.recording), _row("heard", shown)]
    if context.full:
        for other in report.divergences:
            if other is not first:
                parts += ["", _title(other, report), "", *_divergence(other, lines, context, report)]
    parts += ["", *_counts(report)]
    parts += [f"note: {note}" for note in report.notes]
    others = sum(map(report.total, ("different", "missing", "unexpected", "late", "early"))) - (first is not None)
    if not context.full and (others > 0 or any("…" in line for line in parts)):
        parts.append(f"everything, in full:    {context.rerun} -vv")
    if not report.crashed and task is None:
        parts.append(f"if the change is right: {context.rerun} --recording=accept")
        if first is not None and first.kind == "different" and first.path and first.path != "$":
            paths = [*(context.ignored or ()), general_path(first.path)]
            rule = f"ignore=[{', '.join(map(_quoted, paths))}]"
            rule = f"match=Match({rule})" if context.ignored is None else rule
            parts.append(f"if it differs each run: {rule} in the mark of the test")
    return "\n".join(parts)


def raised(task: Unawaited) -> str:
    """Return who raised what in a task or callback that nothing awaited, after how many messages."""
    error = f"{type(task.error).__name__}: {task.error}"
    state = task.state
    who = f"a {task.started} of {'a live agent' if state is None else state.label}"
    said = "" if state is None or state.said is None else f" after {state.said:,} of {plural(state.of, 'message')}"
    return f"{who}{said} raised {error}" if error.endswith(".") else f"{who} raised {error}{said}"


def _headline(
    report: CastReport,
    first: Divergence | None,
    context: Context,
    returned: Collection[str],
    why_late: Callable[[Divergence], str],
    task: Unawaited | None,
) -> str:
    if report.crashed:
        agent, error = next(iter(report.crashed.items()))
        part = _part(agent, report)
        said = "" if part is None else f" after {part.matched + part.different} of {plural(part.expected, 'message')}"
        return f"{agent}{said} raised {error}" if error.endswith(".") else f"{agent} raised {error}{said}"
    if task is not None:
        return raised(task)
    if first is None:
        return "the replay ended without a result"
    title = _title(first, report)
    if first.kind == "late":
        return f"{title}: it was given up after {context.patience:g} s, because {why_late(first)}"
    if first.kind == "missing" and not _goes_on(first, report):
        title = f"{_who(first)} said nothing more after {first.index or 0:,} of {plural(first.of, 'message')}"
        if first.part in returned:
            return f"{title}, as it had returned"
        return f"{title}, and was waited for in vain" if report.timed_out else title
    return title


def _title(of: Divergence, report: CastReport) -> str:
    message = f"message {(of.index or 0) + 1:,} of {of.of:,}"
    if of.kind == "unexpected":
        part = _part(of.part, report)
        said = "" if part is None else f", besides {part.matched + part.different} of {part.expected} that are"
        return f"{_who(of)} said a message that is not in the recording{said}"
    if of.kind == "missing":
        return f"{_who(of)} did not say {message}"
    if of.kind == "late":
        return f"{_who(of)} said {message} late"
    if of.kind == "early":
        return f"{_who(of)} said {message} early: it had not fetched what it had heard before it in the recording"
    return f"{_who(of)} differs from the recording after {of.index or 0:,} of {plural(of.of, 'message')}"


def _goes_on(missing: Divergence, report: CastReport) -> bool:
    """Return whether an agent said anything after the first message that it did not say."""
    part = _part(missing.part, report)
    return part is not None and (part.unexpected > 0 or part.matched + part.different > (missing.index or 0))


def _who(of: Divergence) -> str:
    return of.part if of.agent is None else f"agent {of.agent}"


def _part(label: str, report: CastReport) -> PartReport | None:
    return next((part for part in report.parts if part.label == label), None)


def _quoted(path: str) -> str:
    return safe(json.dumps(path, ensure_ascii=False))


def _divergence(
    of: Divergence, lines: Mapping[tuple[int, int], int], context: Context, report: CastReport
) -> list[str]:
    """Return the place, what was heard before, and both messages one above the other."""
    place = context.recording
    if of.expected is not None:
        number = lines.get((of.expected.recorder, of.expected.seq))
        place += "" if number is None else f", line {number}"
    keys = {"channel": safe(of.channel), **dict(key_differences(of, report.divergences))}
    found = [_row("recording", place), _row("channel", keys.pop("channel"))]
    heard = of.heard if context.full else of.heard[-1:]
    if not heard:
        found.append(_row("heard", "nothing before"))
    for number, (channel, payload) in enumerate(heard):
        found.append(_row("" if number else "heard", _shown(payload, context)))
        if channel != of.channel and context.full:
            found.append(_row("", f"on {safe(channel)}"))
    if of.kind in ("late", "early"):  # if it also differs, that is a divergence of its own
        same_place = (one for one in report.divergences if (one.part, one.index) == (of.part, of.index))
        of = next((one for one in same_place if one.kind == "different"), of)
    return [*found, *_texts(of, _width(context)), *(_row(*text) for text in keys.items())]


def _texts(of: Divergence, width: int) -> list[str]:
    expected, said, path = of.expected, of.said, of.path
    if expected is None:
        return [_row("recorded", "(nothing)"), _row("live", shortened(said or b"", width))]
    if said is None or of.kind in ("late", "early"):
        live = "(nothing)" if said is None else "the same"
        return [_row("recorded", shortened(expected.payload, width)), _row("live", live)]
    if expected.kind == "blocked":
        return [*_alone(expected.payload, "blocked"), *_alone(said, "sent")]
    recorded, live, marker = side_by_side(expected.payload, said, path, width)
    found = [_row("recorded", recorded), _row("live", live), _row("", marker)]
    return found if path in (None, "$") else [*found, _row("differs at", safe(path or ""))]


def _shown(payload: bytes, context: Context) -> str:
    return whole_text(payload) if context.full else shortened(payload, _width(context))


def _alone(payload: bytes, verb: str) -> Sequence[str]:
    return [_row(verb, whole_text(payload))]


def _counts(report: CastReport) -> list[str]:
    named = ["matched", "different", "missing", "unexpected"]
    named += [name for name in ("late", "early") if report.total(name)]
    parts = report.parts if len(report.parts) > 1 else []
    found = [f"{report.total('expected'):,} expected: " + ", ".join(f"{report.total(name):,} {name}" for name in named)]
    for part in parts:
        counts = ", ".join(f"{getattr(part, name):,} {name}" for name in named if getattr(part, name))
        found.append(f"  {part.label}: {part.expected:,} expected{': ' if counts else ''}{counts}")
    if report.total("lost"):
        found.append(f"{plural(report.total('lost'), 'recorded reception')} did not arrive")
    if report.pace == "weaker":
        found.append("the recording does not say what was heard before each message: its order was used")
    return found


def _row(label: str, text: str) -> str:
    return f"  {label:<{_LABEL}} {text}".rstrip()


def _width(context: Context) -> int:
    """Return the columns that a message may take."""
    if context.full:
        return 1_000_000
    columns = shutil.get_terminal_size((100, 24)).columns
    return min(max(columns, _NARROWEST), _WIDEST) - _MARGIN - _LABEL - 3
