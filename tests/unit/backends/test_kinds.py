"""What the table of backends says, and that it says so of records of other versions, too."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from leasectl.backends import dry_run, etcd, kubernetes, local
from leasectl.backends.boskos import opening as boskos_opening
from leasectl.backends.boskos import status as boskos_status
from leasectl.backends.contract import Opener
from leasectl.backends.kinds import (
    KINDS,
    Kind,
    claim_key_of,
    kind_of,
    kind_of_handle,
    not_served,
    release_key_of,
    served_prefixes,
)
from leasectl.backends.opening import check_url, open_probe, open_renewals
from leasectl.backends.proxy import opening as proxy_opening
from leasectl.backends.proxy import status as proxy_status
from leasectl.backends.servers import (
    ClaimServer,
    CountServer,
    Locator,
    PoolServer,
    StatusServer,
    TimingSource,
)
from leasectl.doctor import boskos as examination_of_boskos
from leasectl.doctor import etcd as examination_of_etcd
from leasectl.doctor import kubernetes as examination_of_kubernetes
from leasectl.doctor import lease_proxy as examination_of_proxy
from leasectl.doctor.examination import Examiner
from leasectl.errors import InvalidRequest, NotSupported
from leasectl.http.settings import Settings
from leasectl.model import Handle, Request
from leasectl.system.clock import Clock

# What a row names is looked up by name; these have the type checker look at it as well.
openers: tuple[Opener, ...] = (local, etcd, kubernetes, proxy_opening, boskos_opening, dry_run)
pool_servers: tuple[PoolServer, ...] = (etcd, kubernetes)
claim_servers: tuple[ClaimServer, ...] = (*pool_servers, boskos_opening)
locators: tuple[Locator, ...] = (kubernetes, boskos_opening)
timing_sources: tuple[TimingSource, ...] = (boskos_opening,)
count_servers: tuple[CountServer, ...] = (boskos_status,)
examiners: tuple[Examiner, ...] = (
    examination_of_etcd,
    examination_of_kubernetes,
    examination_of_proxy,
    examination_of_boskos,
)
status_servers: tuple[StatusServer, ...] = (proxy_status,)

ids = [kind.schemes[0] for kind in KINDS]


def a_handle(backend: str, **fields: object) -> Handle:
    plain = Handle("T-1", backend, Request("T"), "job/1", "job/1/host/T-1", "held", acquisition=3)
    return plain._replace(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "title"),
    [
        ("local:", "the embedded pool"),
        ("none:", "a dry run"),
        ("etcd://h:2379/ci", "etcd"),
        ("etcds://h", "etcd"),
        ("http://proxy", "a lease proxy"),
        ("https://proxy/path", "a lease proxy"),
        ("boskos+http://boskos", "Boskos"),
        ("boskos+https://boskos/path?expire=5m", "Boskos"),
    ],
)
def test_a_url_is_of_the_kind_that_its_scheme_names(url: str, title: str) -> None:
    assert kind_of(url).title == title
    assert check_url(url) == url


@pytest.mark.parametrize("url", ["", "local", "local:x", "none:x", "gopher://x", "etcd"])
def test_other_urls_name_no_backend(url: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        kind_of(url)
    assert str(refused.value) == (
        f'unknown backend "{url}"; choose local:, none:, etcd://HOST:PORT, '
        "kubernetes://NAMESPACE, the http:// address of a lease proxy or boskos+http://HOST with "
        "--backend or LEASECTL_BACKEND"
    )


@pytest.mark.parametrize("url", ["http:", "http:x", "https://", "http://h y"])
def test_an_address_that_is_none_names_no_backend(url: str) -> None:
    kind_of(url)
    with pytest.raises(InvalidRequest, match="unknown backend"):
        check_url(url)


@pytest.mark.parametrize("scheme", ["http", "https", "boskos+http", "etcd"])
@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_a_port_that_no_server_can_have_is_refused_before_anybody_waits(
    scheme: str, port: str
) -> None:
    with pytest.raises(InvalidRequest, match=f"has port {port}, which is not between"):
        check_url(f"{scheme}://h:{port}")


@pytest.mark.parametrize(
    "url", ["http://h", "https://h:1/p", "http://[::1]:8080/", "http://[::1]", "http://h:65535"]
)
def test_other_addresses_of_a_lease_proxy_can_be_asked(url: str) -> None:
    assert check_url(url) == url


@pytest.mark.parametrize(
    "before", ["", "http:", "http:/", "http://", "htp://", "boskos+http://", "etcd://", "h://a@b:x"]
)
def test_no_password_in_an_address_is_shown(before: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_url(f"{before}me:secret@proxy:8080/path")
    assert "secret" not in str(refused.value)


def test_a_scheme_is_in_one_row() -> None:
    schemes = [scheme for kind in KINDS for scheme in kind.schemes]
    assert len(schemes) == len(set(schemes))


@pytest.mark.parametrize("kind", KINDS, ids=ids)
def test_a_row_names_modules_that_have_what_is_asked_of_them(kind: Kind) -> None:
    assert importlib.import_module(kind.opener) in openers
    if kind.claim_server:
        servers = pool_servers if kind.has_pools else claim_servers
        assert importlib.import_module(kind.claim_server) in servers
    if kind.status_by:
        assert importlib.import_module(kind.status_by) in status_servers
    if kind.examined_by:
        assert importlib.import_module(kind.examined_by) in examiners
    if kind.located_by:
        assert importlib.import_module(kind.located_by) in locators
    if kind.timed_by:
        assert importlib.import_module(kind.timed_by) in timing_sources
    if kind.counted_by:
        assert importlib.import_module(kind.counted_by) in count_servers


@pytest.mark.parametrize("url", ["local:", "none:", "http://proxy"])
def test_where_no_pools_are_on_a_server_there_is_none_to_be_asked(url: str) -> None:
    assert open_probe(url, Settings(), clock=Clock()) is None
    with pytest.raises(NotSupported, match="aren't renewed by their holder"):
        open_renewals(url, state_id="", settings="", ttl_seconds=9.0, clock=Clock())


@pytest.mark.parametrize(
    ("backend", "claim_key", "release_key"),
    [
        ("local:", "T-1", "local: T-1"),
        ("none:", "T-1", "none: T-1"),
        ("etcd://h", "T-1/3", "etcd://h T-1/3"),
        ("kubernetes://", "T-1/3", "kubernetes:// T-1/3"),
        ("http://proxy", "T-1/3", "http://proxy"),
        ("boskos+http://b", "job/1/host/T-1/3", "boskos+http://b job/1/host/T-1/3"),
    ],
)
def test_a_claim_key_says_which_acquisition_unless_it_changes_with_the_record(
    backend: str, claim_key: str, release_key: str
) -> None:
    handle = a_handle(backend)
    assert (claim_key_of(handle), release_key_of(handle)) == (claim_key, release_key)


def test_a_handle_that_adopted_a_claim_has_the_claims_own_key() -> None:
    adopter = a_handle("etcd://h")._replace(adopted_claim="T-9/1")
    assert claim_key_of(adopter) == "T-9/1"


def test_of_a_backend_that_only_another_version_knows_nothing_is_asked_here() -> None:
    handle = a_handle("tomorrows://server")
    kind = kind_of_handle(handle)
    assert kind.remote
    assert not kind.has_pools
    assert claim_key_of(handle) == "T-1/3"


def test_what_can_be_served_is_known_of_every_row() -> None:
    titles = ["the embedded pool", "etcd", "Kubernetes", "Boskos"]
    assert [each.title for each in KINDS if each.can_be_served] == titles
    assert served_prefixes("or") == "local:, etcd://, kubernetes:// or boskos+http://"
    assert "choose local:, etcd://HOST:PORT, " in str(not_served("none:"))


def test_the_page_on_variables_names_every_kind() -> None:
    page = Path(__file__).parents[3].joinpath("docs/files.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| `LEASECTL_BACKEND` |")]
    for kind in KINDS:
        assert f"`{kind.prefix}" in row, kind.title
