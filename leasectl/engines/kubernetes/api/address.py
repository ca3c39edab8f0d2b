"""Parse ``kubernetes://NAMESPACE?context=NAME&kubeconfig=PATH``."""

from __future__ import annotations

import re
from typing import NamedTuple

from leasectl.errors import InvalidRequest
from leasectl.text.wording import printable, printable_url

_SCHEME = "kubernetes://"
# Of a label of DNS: RFC 1123, as the API server wants it of a namespace.
_OF_LABELS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_LONGEST_LABEL = 63
_ESCAPE = rb"%([0-9A-Fa-f]{2})?"
_LONGEST_VALUE = 4096


class KubernetesAddress(NamedTuple):
    """What a URL says; what it doesn't is found out elsewhere.

    Args:
        namespace: Where the objects are.
        context: The entry of a kubeconfig that says which cluster, and as whom.
        kubeconfig: The path of that file.
    """

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None


def parse_kubernetes_url(url: str) -> KubernetesAddress:
    """Read the URL of a namespace.

    Raises:
        InvalidRequest: It is none.
    """
    if "@" in url.partition("?")[0]:
        raise InvalidRequest(  # without the address, which may hold a password
            "a Kubernetes address can't hold a user; name a kubeconfig with the user "
            "in LEASECTL_KUBECONFIG"
        )
    if not url.startswith(_SCHEME):
        raise _wrong(url, "is not a URL of Kubernetes")
    namespace, question, query = url[len(_SCHEME) :].partition("?")
    namespace = namespace.removesuffix("/")
    if namespace and not is_namespace(namespace):
        raise _wrong(url, f'has "{printable(namespace)}" where a namespace should be')
    given = _parameters(url, query) if question else {}
    return KubernetesAddress(namespace or None, given.get("context"), given.get("kubeconfig"))


def is_namespace(text: str) -> bool:
    """Whether a namespace can have that name."""
    return (
        0 < len(text) <= _LONGEST_LABEL and _OF_LABELS.issuperset(text) and text.strip("-") == text
    )


def _parameters(url: str, query: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for each in query.split("&"):
        name, equals, value = each.partition("=")
        if name not in ("context", "kubeconfig"):
            raise _wrong(
                url, f'has the parameter "{printable(name)}", which isn\'t context or kubeconfig'
            )
        if name in given:
            raise _wrong(url, f"has {name} twice")
        given[name] = _unescaped(url, name, value)
        if not equals or not given[name]:
            raise _wrong(url, f"has {name} without a value")
    return given


def _unescaped(url: str, name: str, value: str) -> str:
    """What a value stands for: "%2F" and the like are what they are in all URLs; "+" is a "+"."""
    raw = value.encode(errors="surrogateescape")
    if any(found[1] is None for found in re.finditer(_ESCAPE, raw)):
        raise _wrong(url, f'has a "%" in {name} that isn\'t written as %25')
    unescaped = re.sub(_ESCAPE, lambda found: bytes.fromhex(found[1].decode()), raw)
    text = unescaped.decode(errors="replace")
    if not text.isprintable() or "\ufffd" in text or len(text) > _LONGEST_VALUE:
        raise _wrong(url, f"has a {name} that can't be one")
    return text


def _wrong(url: str, what: str) -> InvalidRequest:
    return InvalidRequest(
        f'"{printable_url(url, longest=200)}" {what}; '
        "write it like kubernetes://namespace?context=name&kubeconfig=/path"
    )
