"""What happened in pools that machines share, as each of them is told."""

from __future__ import annotations

import json
import signal

from leasectl.engines.etcd.events.buckets import parse_bucket
from leasectl.engines.etcd.gateway.requests import read
from leasectl.state.event import Kept
from tests.kit.hosts import Hosts


def test_who_follows_hears_what_happens_on_another_machine_each_once(hosts: Hosts) -> None:
    here, there = hosts.new(), hosts.new()
    there.ok("pool", "create", "T", "--count", "1", LEASECTL_KEEP_EVENTS="2h,640")
    following = here.start("events", "-f", "--json", "-t", "T")
    assert following.process.stdout is not None
    assert json.loads(following.process.stdout.readline())["kind"] == "pool made"
    handle = there.ok("acquire", "-q", "-t", "T").strip()
    there.ok("release", "--handle", handle)
    told = [json.loads(following.process.stdout.readline()) for _ in range(3)]
    assert [each["kind"] for each in told] == ["queued", "granted", "released"]
    following.signal(signal.SIGINT)
    assert following.finish().out == ""
    assert [json.loads(line) for line in here.ok("events", "--json").splitlines()][1:] == told
    (now,) = hosts.access.gateway.read(read(hosts.access.keys.bucket_now())).answers
    assert now.first is not None
    assert parse_bucket(now.first).kept == Kept(7200, 640)
