"""What a service account may do: a Role and its binding, in force once servers have heard of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial

from tests.kit.kubernetes.api import Api, Object
from tests.kit.waits import eventually

Rules = Sequence[Mapping[str, Sequence[str]]]

LEAST_RULES: Rules = (
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "list", "watch", "create", "update", "delete"],
    },
    {
        "apiGroups": ["events.k8s.io"],
        "resources": ["events"],
        "verbs": ["create", "list", "watch"],
    },
)

# Besides those, in all of the cluster.
MAINTENANCE_RULES: Rules = (
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
)

_GROUP = "rbac.authorization.k8s.io"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Rights:
    """Those that one account has in one place, none at first.

    Args:
        administrators: Access to each API server, as somebody who may do everything.
        namespace: That the account is in.
        account: Its name.
        everywhere: Whether the rights are for all of the cluster, not only for that namespace.
    """

    def __init__(
        self, administrators: Sequence[Api], namespace: str, account: str, *, everywhere: bool
    ) -> None:
        self._administrators = administrators
        self._subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
        self._user = f"system:serviceaccount:{namespace}:{account}"
        self._kind = "ClusterRole" if everywhere else "Role"
        self._name = f"{namespace}-{account}"
        self._namespace = None if everywhere else namespace
        below = "" if everywhere else f"/namespaces/{namespace}"
        self._path = f"/apis/{_GROUP}/v1{below}/{self._kind.lower()}"
        self._changes = itertools.count(1)
        self._mark = ""

    def permit(self, rules: Rules) -> None:
        """Let it do so much, and nothing else, from here on."""
        # Servers hear of a change a moment later. This right is of no use but to tell when.
        self._mark = f"change-{next(self._changes)}"
        mark = {"apiGroups": ["leasectl.test"], "resources": [self._mark], "verbs": ["get"]}
        self._put("s", {"rules": [*rules, mark]})
        reference = {"apiGroup": _GROUP, "kind": self._kind, "name": self._name}
        self._put("bindings", {"subjects": [self._subject], "roleRef": reference})
        self._wait_until_permitted(True)

    def forbid(self) -> None:
        """Let it do nothing, from here on."""
        if self._mark:
            self._administrators[0].ok("DELETE", f"{self._path}bindings/{self._name}")
            self._wait_until_permitted(False)
            self._mark = ""

    def _put(self, kind: str, body: Object) -> None:
        path, ask = f"{self._path}{kind}", self._administrators[0]
        named = {"metadata": {"name": self._name}, **body}
        if ask("POST", path, named).status_code == 409:
            ask.ok("PUT", f"{path}/{self._name}", named)

    def _wait_until_permitted(self, expected: bool) -> None:
        asked = {"group": "leasectl.test", "resource": self._mark, "verb": "get"}
        if self._namespace:
            asked["namespace"] = self._namespace
        review = {"spec": {"user": self._user, "resourceAttributes": asked}}
        for api in self._administrators:
            eventually(
                partial(_is_answered, api, review, expected),
                what=f"{api.server} has heard of the rights of {self._user}",
            )


def _is_answered(api: Api, review: Object, expected: bool) -> bool:
    return bool(api.ok("POST", _REVIEWS, review)["status"]["allowed"]) is expected
