"""Addresses of namespaces, good and bad."""

from __future__ import annotations

import pytest

from leasectl.engines.kubernetes.api.address import KubernetesAddress, parse_kubernetes_url
from leasectl.errors import InvalidRequest


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("kubernetes://", KubernetesAddress()),
        ("kubernetes://ci", KubernetesAddress("ci")),
        ("kubernetes://ci/", KubernetesAddress("ci")),
        ("kubernetes://?context=a", KubernetesAddress(context="a")),
        (
            "kubernetes://ci?kubeconfig=/a%20b/c&context=admin@cluster/x:1",
            KubernetesAddress("ci", "admin@cluster/x:1", "/a b/c"),
        ),
        ("kubernetes://ci?kubeconfig=/ä", KubernetesAddress("ci", None, "/ä")),
        ("kubernetes://ci?kubeconfig=/%C3%A4+", KubernetesAddress("ci", None, "/ä+")),
    ],
)
def test_what_they_say(url: str, address: KubernetesAddress) -> None:
    assert parse_kubernetes_url(url) == address


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("kubernetes:", "is not a URL of Kubernetes"),
        ("kubernetes:/ci", "is not a URL of Kubernetes"),
        ("Kubernetes://ci", "is not a URL of Kubernetes"),
        ("kubernetes://CI", 'has "CI" where a namespace should be'),
        ("kubernetes://a.b", "where a namespace should be"),
        ("kubernetes://-a", "where a namespace should be"),
        ("kubernetes://ci/pools", 'has "ci/pools" where a namespace should be'),
        ("kubernetes://ci#x", "where a namespace should be"),
        (f"kubernetes://{'a' * 64}", "where a namespace should be"),
        ("kubernetes://ci?", 'has the parameter ""'),
        ("kubernetes://ci?conttext=a", 'has the parameter "conttext"'),
        ("kubernetes://ci?context", "has context without a value"),
        ("kubernetes://ci?context=", "has context without a value"),
        ("kubernetes://ci?context=a&context=b", "has context twice"),
        ("kubernetes://ci?context=a&", 'has the parameter ""'),
        ("kubernetes://ci?kubeconfig=%", 'has a "%" in kubeconfig'),
        ("kubernetes://ci?kubeconfig=%0a", "has an invalid kubeconfig"),
        ("kubernetes://ci?kubeconfig=%FF", "has an invalid kubeconfig"),
        ("kubernetes://ci?kubeconfig=\udcff", "has an invalid kubeconfig"),
        ("kubernetes://ci?context=\x1b[2J", "has an invalid context"),
        (f"kubernetes://ci?context={'a' * 5000}", "has an invalid context"),
    ],
)
def test_what_is_none_is_refused_with_what_one_looks_like(url: str, why: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse_kubernetes_url(url)
    assert why in str(raised.value)
    assert "write it like kubernetes://namespace?context=name&kubeconfig=/path" in str(raised.value)
    assert str(raised.value).isprintable()


def test_a_password_in_one_reaches_no_terminal() -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse_kubernetes_url("kubernetes://me:secret@ci")
    assert "secret" not in str(raised.value)
