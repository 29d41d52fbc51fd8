"""Errors can be pickled: Ray and `multiprocessing` pass them from one process to another."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from collections.abc import Iterator

import pytest

import messager_store.lockstep
from messager.errors import BrokerUnavailable, MessagerError, PublishError
from messager_store.errors import BadFile, StoreError


def below(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for one in kind.__subclasses__():
        yield from below(one)


def test_every_error_is_the_same_after_it_was_pickled() -> None:
    for module in pkgutil.iter_modules(messager_store.lockstep.__path__):  # some errors are defined there
        importlib.import_module(f"messager_store.lockstep.{module.name}")
    kinds = [*below(MessagerError), *below(StoreError)]
    assert len(kinds) > 40
    for kind in kinds:
        error = kind.__new__(kind, "what is wrong")
        error.where = [1, "x"]  # type: ignore[attr-defined]
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind and (again.args, vars(again)) == (("what is wrong",), {"where": [1, "x"]})


@pytest.mark.parametrize(
    "error", [BrokerUnavailable("redis://h", "no answer"), PublishError("x", "unknown"), BadFile("f", 3, "no JSON")]
)
def test_a_pickled_error_has_its_text_and_its_facts(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and vars(again) == vars(error)
