"""leasectl.engines.etcd.watching: a watch at a member that hangs."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from leasectl.engines.cluster.objects import Happened, Identity
from leasectl.engines.etcd.address import EtcdAddress
from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.etcd.watching import EtcdWatch
from leasectl.http.no_answer import WatchEnded
from leasectl.system.clock import Clock
from tests.kit.peculiar import Peculiar
from tests.kit.waits import result_of, wait_set


def _hang(client: socket.socket) -> None:
    client.recv(1)


def test_it_is_among_those_that_can_be_cut_before_its_member_has_answered() -> None:
    hanging = Peculiar(_hang)
    gateway, opened = Gateway(EtcdAddress((hanging.endpoint,)), clock=Clock()), set[EtcdWatch]()
    nothing = Happened("nothing", Identity(""))
    watch = EtcdWatch(gateway, ["/p/"], 0, tell=lambda kv, is_gone: nothing, opened=opened)
    with ThreadPoolExecutor() as executor:
        entering = executor.submit(watch.__enter__)
        wait_set(hanging.asked)
        for each in list(opened):
            each.cut()
        with pytest.raises(WatchEnded):
            result_of(entering)
    assert opened == set()
    gateway.close()
    hanging.close()
