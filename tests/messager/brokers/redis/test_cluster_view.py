"""Parsing of CLUSTER NODES."""

from __future__ import annotations

from redis.asyncio import ConnectionPool

from messager.brokers.redis.cluster import MOST_NODES, Cluster, View

LISTED = b"""\
aa 127.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-5460
bb 127.0.0.1:7001@17001,host-b master - 0 1700000000000 2 disconnected 5461-10922 [5461->-cc]
cc 10.0.0.3:7002@17002 slave,fail? aa 0 1700000000000 1 connected
dd :0@0 master,noaddr,fail - 0 0 3 disconnected
"""


def test_members_have_their_flags_and_the_state_of_the_link_to_them() -> None:
    view = View(LISTED)
    assert view.own == "aa" and view.has_slots
    assert {name: (one.linked, one.failed) for name, one in view.members.items()} == {
        "aa": (True, False),
        "bb": (False, False),
        "cc": (True, False),
        "dd": (False, True),
    }
    assert (view.members["bb"].name, view.members["bb"].port, view.members["cc"].ip) == ("host-b", 7001, "10.0.0.3")


def test_a_node_that_was_reset_knows_no_slots() -> None:
    assert not View(b"aa 127.0.0.1:7000@17000 myself,master - 0 0 0 connected\n").has_slots


def test_of_thousands_of_listed_nodes_as_many_are_used_as_a_cluster_has() -> None:
    own = Cluster(ConnectionPool(), [("127.0.0.1", 7000)], "redis+cluster://127.0.0.1:7000")
    line = "%x 10.0.%d.%d:6379@16379 master - 0 0 1 connected\n"
    for first in (0, 2000):
        own.learn("".join(line % (at, at // 250, at % 250) for at in range(first, first + 5000)).encode())
        assert own.nodes == [(f"10.0.{at // 250}.{at % 250}", 6379) for at in range(first, first + MOST_NODES)]
