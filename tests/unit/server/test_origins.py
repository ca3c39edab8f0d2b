"""Web pages of other sites, in a browser on the server's machine: they may neither read nor act."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.faults.raw_client import Got
from tests.kit.serving import Serve, Serving, held
from tests.kit.support import Cli

ACQUIRE = "/lease/acquire?type={}&count=1"


def ask(server: Serving, method: str, target: str, host: str, **headers: str) -> Got:
    """Send a request with a Host of its own."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *lines, "", ""])
    with server.connect() as client:
        client.socket.sendall(head.encode())
        return client.read_answer()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example", "Content_Type": "text/plain"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/lease/acquire?type={}&count=1", "/lease/release", "/"])
def test_page_of_another_site_changes_nothing(
    shared: Serving, pool: str, path: str, headers: dict[str, str]
) -> None:
    host = shared.url.rpartition("/")[2]
    got = ask(shared, "POST", path.format(pool), host, **headers)
    assert (got.status, got.text) == (403, "requests from another site's page are refused\n")
    assert held(shared.cli, pool) == []


@pytest.mark.parametrize(
    "headers", [{}, {"Sec_Fetch_Site": "same-origin"}, {"Sec_Fetch_Site": "none"}], ids=str
)
def test_own_page_and_scripts_may_change_things(
    shared: Serving, pool: str, headers: dict[str, str]
) -> None:
    host = shared.url.rpartition("/")[2]
    assert ask(shared, "POST", ACQUIRE.format(pool), host, **headers).names
    assert ask(shared, "POST", ACQUIRE.format(pool), host, Origin=shared.url).names


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example:1"])
@pytest.mark.parametrize("path", ["/", "/leasectl/v1/status", "/metrics", "/leasectl/page/changes"])
def test_host_name_of_a_stranger_reads_nothing(shared: Serving, path: str, host: str) -> None:
    got = ask(shared, "GET", path, host)
    assert got.status == 403
    assert got.text.startswith(f"unknown host {host.partition(':')[0]}; use the server's address")


@pytest.mark.parametrize(
    "host",
    [
        "localhost:1",
        "127.0.0.1",
        "[::1]:80",
        "lease-proxy",
        "host.docker.internal:8080",
        "a.localhost",
    ],
)
def test_names_that_no_stranger_can_have_are_answered(shared: Serving, host: str) -> None:
    assert ask(shared, "GET", "/metrics", host).status == 200


def test_reverse_proxy_may_pass_on_its_name_where_there_is_a_token(
    cli: Cli, serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("secret")
    server = serve("--token-file", str(tmp_path / "token"))
    shown = {"Authorization": "Bearer secret"}
    assert ask(server, "GET", "/metrics", "leases.example.com", **shown).status == 200
    got = ask(server, "POST", "/", "leases.example.com", Sec_Fetch_Site="cross-site", **shown)
    assert got.status == 403
