"""Redis URLs: their options, and their form without credentials."""

from __future__ import annotations

import pytest
from redis.exceptions import RedisError

from messager import BrokerUnavailable, MemoryBroker, RedisBroker
from messager.brokers import open_broker
from messager.brokers.redis.endpoint import Server
from messager.brokers.redis.error_text import error_text
from messager.brokers.redis.url import several_hosts
from messager.brokers.urls import without_credentials
from messager_store.experiments.provenance import command_line
from tests.store.log.test_hostile import SECRETS


def test_sentinels_are_named_with_their_service_and_the_database() -> None:
    parts = several_hosts("redis+sentinel://bob:pa%2Fss@one:1,[::1]:2,three/here/5?sentinel_password=se%3Fcret&db=7")
    assert parts.hosts == [("one", 1), ("::1", 2), ("three", 26379)]
    assert parts.service == "here"
    assert parts.template == "redis://bob:pa%2Fss@localhost/5?db=7"
    assert (parts.sentinel_username, parts.sentinel_password) == (None, "se?cret")


def test_what_is_left_out_has_the_usual_value() -> None:
    assert several_hosts("redis+sentinel://one").hosts == [("one", 26379)]
    assert several_hosts("rediss+sentinel://one").service == "mymaster"
    assert several_hosts("redis+cluster://one,two:1").hosts == [("one", 6379), ("two", 1)]


def test_a_url_is_shown_without_credentials() -> None:
    for url, shown in [
        ("redis+sentinel://bob:secret@one:1,two:2/here/0?sentinel_password=x", "redis+sentinel://one:1,two:2/here/0"),
        ("rediss+cluster://:se,cret@[::1]:1,[::2]:2", "rediss+cluster://[::1]:1,[::2]:2"),
        ("redis+cluster://bob:se/cret@one:1,two:2", "redis+cluster://one:1,two:2"),
        ("redis+cluster://bob:s@e/cret@one:1,two:2", "redis+cluster://..."),
        ("redis+cluster://one,two:2/0", "redis+cluster://one,two:2/0"),
        ("unix://bob:secret@/a/b.sock?db=1", "unix:///a/b.sock"),
    ]:
        assert without_credentials(url) == shown


SHAPES = [
    "redis+sentinel://bob:{}@127.0.0.1:1,127.0.0.1:2/here/0",
    "redis+sentinel://127.0.0.1:1,127.0.0.1:2/here?sentinel_password={}",
    "redis+cluster://:{}@127.0.0.1:1,[::1]:2",
    "rediss+cluster://127.0.0.1:1,127.0.0.1:2?password={}&oops=1",
]


async def test_no_password_of_several_hosts_is_repeated() -> None:
    for secret in [*SECRETS, "hun,ter2", "hun@x,ter2"]:
        for shape in SHAPES:
            url = shape.format(secret)
            said = without_credentials(url) + " ".join(command_line(["messager", "--redis", url]))
            try:
                broker = RedisBroker.from_url(url)
                said += broker.url
                await broker.connect()
            except (ValueError, BrokerUnavailable) as error:
                said += f"{error} {error!r}"
            for piece in (secret, "hun", "ter2"):
                assert piece not in said, said


def test_a_url_that_cannot_be_used_is_refused_with_what_is_wrong() -> None:
    for url, words in [
        ("mqtt://one", "redis, rediss, unix, redis.sentinel, rediss.sentinel, redis.cluster, rediss.cluster"),
        ("redis+sentinel://one:x", "HOST:PORT,HOST:PORT"),
        ("redis+sentinel://one:99999", "HOST:PORT,HOST:PORT"),
        ("redis+sentinel://one,,two", "HOST:PORT,HOST:PORT"),
        ("redis+cluster://", "HOST:PORT,HOST:PORT"),
        ("redis+sentinel://one/here/there", "/SERVICE or /SERVICE/DB"),
        ("redis+cluster://one/x", "nothing"),
        ("redis+cluster://one/3", "the database 0"),
        ("redis+cluster://one?db=3", "the database 0"),
        ("redis+cluster://one?sentinel_password=x", "no sentinels"),
        ("redis+cluster://one?oops=1", "its options are db, username, password, client_name, socket_keepalive.$"),
        ("redis+sentinel://one/here?oops=1", "its options are db, .* sentinel_username, sentinel_password.$"),
        ("rediss://one?oops=1", "its options are db, .* ssl_ca_certs, ssl_ca_path, ssl_certfile, ssl_keyfile, "),
        ("redis://one/0?protocol=3", "its options are db, "),
        ("redis://one?host=two", "its options are db, "),
        ("redis://one?ssl_ca_certs=x", "ssl_... are for rediss://"),
        ("redis+sentinel://one/here?db=x", "the database is a number"),
        ("redis://one/abc", "the database is a number, as in redis://HOST/0"),
        ("rediss://one/1.5", "the database is a number"),
        ("redis://one/0/1", "the database is a number"),
        ("redis://one/-1", "the database is a number"),
        ("redis://one?db=-1", "the database is a number"),
        ("unix:///a/b.sock?db=", "the database is a number"),
        ("redis+cluster://bob:pa@ss/word@one", "%2F"),
        ("unix+cluster://one", "begins with none of"),
    ]:
        with pytest.raises(ValueError, match=f"is not a Redis URL .*{words}"):
            RedisBroker.from_url(url)


def test_a_database_may_be_named_in_several_ways() -> None:
    for url in ["redis://one", "redis://one/", "redis://one/3", "redis://one/3/", "redis://one?db=3"]:
        addresses = RedisBroker.from_url(url)._endpoint
        assert isinstance(addresses, Server)
        assert addresses._make().db == (3 if "3" in url else 0)  # type: ignore[attr-defined]


def test_what_is_no_text_opens_no_broker() -> None:
    for url in [5, None, b"redis://one", MemoryBroker()]:
        with pytest.raises(TypeError, match=f"opened by a URL, not by {type(url).__name__}"):
            open_broker(url)


def test_the_nodes_of_a_cluster_are_those_that_are_up() -> None:
    cluster = RedisBroker.from_url("redis+cluster://seed:1")._cluster
    through_tls = RedisBroker.from_url("rediss+cluster://seed:1")._cluster
    assert cluster is not None and through_tls is not None
    listed = b"""a 10.0.0.1:7001@17001,one.example,shard-id=x myself,master - 0 0 1 connected 0-8191
b 10.0.0.2:7002@17002 slave a 0 0 1 connected
c ::1:7003@17003 master,fail? - 0 0 2 connected 8192-16383
d 10.0.0.4:7004@17004 master,fail - 0 0 3 disconnected
e :0@0 master,noaddr - 0 0 4 disconnected
f 10.0.0.6:7006@17006 handshake - 0 0 0 connected
"""
    cluster.learn(listed)
    assert cluster.nodes == [("10.0.0.1", 7001), ("10.0.0.2", 7002), ("::1", 7003)]
    assert cluster._known == [("seed", 1), *cluster.nodes]
    cluster.learn(listed.partition(b"b ")[0])
    assert cluster._known == [("seed", 1), ("10.0.0.1", 7001)]
    through_tls.learn(listed)
    assert through_tls.nodes[0] == ("one.example", 7001)


def test_the_scheme_may_be_written_in_capitals() -> None:
    assert RedisBroker.from_url("Redis+Cluster://one:1").url == "Redis+Cluster://one:1"


def test_a_password_is_masked_where_it_stands_and_not_inside_of_other_words() -> None:
    error = RedisError("invalid username-password pair, AUTH p, 'p', redis://u:p@host")
    assert error_text(error, ["p"]) == "invalid username-password pair, AUTH ***, '***', redis://u:***@host"
    assert error_text(RedisError("unknown: 'a b!', '/x.sock'"), ["a b!", "/x.sock"]) == "unknown: '***', '***'"
