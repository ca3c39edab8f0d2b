"""Which URLs mean a cluster of etcd, and what they mean."""

from __future__ import annotations

import pytest

from leasectl.engines.etcd.address import parse_etcd_url
from leasectl.errors import InvalidRequest


@pytest.mark.parametrize(
    ("url", "endpoints", "prefix"),
    [
        ("etcd://h:1", ["http://h:1"], "/leasectl"),
        ("etcd://h:65535/", ["http://h:65535"], "/leasectl"),
        ("etcd://h", ["http://h:2379"], "/leasectl"),
        ("etcds://h", ["https://h:2379"], "/leasectl"),
        ("etcd://a,b:1/ci", ["http://a:2379", "http://b:1"], "/ci"),
        ("etcd://etcd-0.etcd.ns.svc:2379/a/b.c", ["http://etcd-0.etcd.ns.svc:2379"], "/a/b.c"),
        ("etcd://my_etcd_1:2379", ["http://my_etcd_1:2379"], "/leasectl"),
        ("etcd://127.0.0.1:02379", ["http://127.0.0.1:2379"], "/leasectl"),
        ("etcds://[::1]:2379", ["https://[::1]:2379"], "/leasectl"),
        (
            "etcd://[fe80::1],[::ffff:1.2.3.4]:1",
            ["http://[fe80::1]:2379", "http://[::ffff:1.2.3.4]:1"],
            "/leasectl",
        ),
        ("etcd://h/ci/", ["http://h:2379"], "/ci"),
        ("etcd://h/ci//", ["http://h:2379"], "/ci"),
        ("etcd://h//", ["http://h:2379"], "/leasectl"),
        ("etcd://h/...", ["http://h:2379"], "/..."),
    ],
)
def test_a_url_names_members_and_a_prefix(url: str, endpoints: list[str], prefix: str) -> None:
    address = parse_etcd_url(url)
    assert address == (tuple(endpoints), prefix)
    assert address.is_secure == url.startswith("etcds")


def test_a_member_that_is_named_twice_counts_once() -> None:
    assert parse_etcd_url("etcd://a,b:1,a:2379,b:1").endpoints == ("http://a:2379", "http://b:1")


@pytest.mark.parametrize(
    "url",
    [
        "etcd:",
        "etcd://",
        "etcd:///prefix",
        "etcd:h:2379",
        "etcd:/h:2379",
        "etcd://a,",
        "etcd://,a",
        "etcd://a,,b",
        "etcd://a b",
        "etcd://h:",
        "etcd://h:0",
        "etcd://h:65536",
        "etcd://h:99999",
        "etcd://h:123456",
        "etcd://h:-1",
        "etcd://h:2379x",
        "etcd://h:1:2",
        "etcd://h:\u0661",
        "etcd://::1",
        "etcd://[::1",
        "etcd://[]",
        "etcd://[:::1]:1",
        "etcd://[127.0.0.1]:1",
        "etcd://[h]:1",
        "etcd://[fe80::1%25eth0]:1",
        "etcd://1.2.3",
        "etcd://2379",
        "etcd://256.0.0.1",
        "etcd://a..b",
        "etcd://.a",
        "etcd://-a",
        "etcd://a-",
        "etcd://" + "a" * 64,
        "etcd://" + ".".join(["a" * 60] * 5),
        "etcd://h?x=y",
        "etcd://h#x",
        "etcd://h/a?b",
        "etcd://h/a b",
        "etcd://h/a%2fb",
        "etcd://h//a",
        "etcd://h/a//b",
        "etcd://h/.",
        "etcd://h/../a",
        "etcd://h/a/./b",
        "etcd://h/\u00e9",
        "etcd://h/a\n",
        "etcd://h\n",
        "etcd://h/$(id)",
        "etcd://h/" + "a" * 2000,
        "ETCD://h",
        "etcd+https://h",
        "http://h",
    ],
)
def test_what_is_no_address_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse_etcd_url(url)
    text = str(refusal.value)
    assert text.isprintable()
    assert "etcd://h1:2379,h2:2379/prefix" in text


def test_what_is_wrong_is_named() -> None:
    for url, named in [
        ("etcd://h:65536", "port 65536"),
        ("etcd://a,b:x/ci", '"b:x"'),
        ("etcd://h/a/../b", '".."'),
    ]:
        with pytest.raises(InvalidRequest, match=named):
            parse_etcd_url(url)


def test_a_password_in_an_address_is_not_shown() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse_etcd_url("etcd://root:s3cret@h:2379")
    assert "s3cret" not in str(refusal.value)
    assert "LEASECTL_USER_FILE" in str(refusal.value)
