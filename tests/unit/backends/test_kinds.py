"""The registry of backends, and what it says of records of other versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasectl.backends.kinds import (
    LOADERS,
    Context,
    all_kinds,
    check_url,
    claim_key_of,
    is_served,
    kind_of,
    kind_of_handle,
    not_served,
    prefixes,
    release_key_of,
)
from leasectl.backends.servers import RenewalTerms
from leasectl.errors import InvalidRequest, NotSupported
from leasectl.model import Handle, Request


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
        ("leasectl+http://server:8080", "leasectl serve"),
        ("leasectl+https://server/path", "leasectl serve"),
        ("boskos+http://boskos", "Boskos"),
        ("boskos+https://boskos/path?expire=5m", "Boskos"),
    ],
)
def test_a_url_is_of_the_kind_that_its_scheme_names(url: str, title: str) -> None:
    assert kind_of(url).title == title
    assert check_url(url) == url


@pytest.mark.parametrize("url", ["", "local:x", "none:x", "gopher://x", "etcd"])
def test_other_urls_name_no_backend(url: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        kind_of(url)
    assert str(refused.value) == (
        f'unknown backend "{url}"; choose local:, none:, etcd://HOST:PORT, '
        "kubernetes://NAMESPACE, the http:// address of a lease proxy, leasectl+http://HOST:PORT "
        "or boskos+http://HOST with --backend or LEASECTL_BACKEND"
    )


@pytest.mark.parametrize("name", ["local", "none"])
def test_a_backend_without_its_colon_is_suggested_with_it(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        kind_of(name)
    assert str(refused.value) == f'unknown backend "{name}"; did you mean "{name}:"?'


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


@pytest.mark.parametrize("url", ["local:", "none:", "http://proxy"])
def test_where_no_pools_are_on_a_server_there_is_none_to_be_asked(url: str) -> None:
    kind, context = kind_of(url), Context(url)
    assert kind.open_probe(context) is None
    with pytest.raises(NotSupported, match="aren't renewed by their holder; local:, etcd:"):
        kind.open_renewals(context, RenewalTerms("", 9.0, lambda notes: None))


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


def test_a_url_in_help_is_of_its_own_kind() -> None:
    for kind in all_kinds():
        assert LOADERS[kind.prefix.partition(":")[0]]() is kind


def test_of_a_backend_that_only_another_version_knows_nothing_is_asked_here() -> None:
    handle = a_handle("tomorrows://server")
    kind = kind_of_handle(handle)
    assert kind.remote
    assert not kind.has_pools
    assert claim_key_of(handle) == "T-1/3"


def test_errors_name_what_can_be_served() -> None:
    titles = ["the embedded pool", "etcd", "Kubernetes", "Boskos"]
    assert [each.title for each in all_kinds() if each.can_be_served] == titles
    assert prefixes("or", has=is_served) == "local:, etcd://, kubernetes:// or boskos+http://"
    assert "choose local:, etcd://HOST:PORT, " in str(not_served("none:"))


def test_the_page_on_variables_names_every_kind() -> None:
    page = Path(__file__).parents[3].joinpath("docs/files.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| `LEASECTL_BACKEND` |")]
    for kind in all_kinds():
        assert f"`{kind.prefix}" in row, kind.title
