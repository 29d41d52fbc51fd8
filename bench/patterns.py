"""Measure how the number of subscribed patterns limits one Redis.

    python -m bench.patterns

Redis compares each published channel with each pattern. One client subscribes to the pattern of each agent, as
AgentSociety does; another publishes to one of these agents, so that each message has one subscriber.
"""

from __future__ import annotations

import subprocess
import sys
import time

from redis import Redis

from messager import redis_server

from .peers import ROOT
from .workload import WIRE, channel

PATTERNS = (1, 1_000, 10_000)
PIPELINE = 50
SECONDS = 3.0


def main() -> None:
    """Print the published messages per second for each number of patterns."""
    with redis_server() as server:
        print("PATTERNS  MESSAGES/S")
        for patterns in PATTERNS:
            print(f"{patterns:>8,}  {_rate(server.port, patterns):>10,.0f}", flush=True)


def _rate(port: int, patterns: int) -> float:
    """Return the messages per second that Redis accepts with this number of subscribed patterns."""
    command = [sys.executable, "-m", "bench.patterns", str(port), str(patterns)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as subscriber, Redis(port=port) as client:
        assert subscriber.stdout is not None
        subscriber.stdout.readline()
        published, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < SECONDS:
            pipeline = client.pipeline(transaction=False)
            for _ in range(PIPELINE):
                pipeline.publish(channel(0), WIRE)
            pipeline.execute()
            published += PIPELINE
        subscriber.terminate()
    return published / took


def _subscribe(port: int, patterns: int) -> None:
    """Subscribe to the patterns of so many agents, print a line, and read until terminated."""
    with Redis(port=port) as client, client.pubsub() as pubsub:
        names = [f"exps:bench:agents:{agent}:*" for agent in range(patterns)]
        for first in range(0, patterns, 1000):
            pubsub.psubscribe(*names[first : first + 1000])
        subscribed = 0
        for message in pubsub.listen():
            if message["type"] == "psubscribe":
                subscribed += 1
                if subscribed == patterns:
                    print("ready", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        _subscribe(int(sys.argv[1]), int(sys.argv[2]))
    else:
        main()
