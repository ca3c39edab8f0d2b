"""Which requests API servers were asked, by their own audit logs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# What the servers ask themselves isn't written down, nor what tests do as administrator.
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:masters"]},
        {"level": "Metadata"},
    ],
}


class Asked(NamedTuple):
    """One request of a client, answered; a watch once it has begun.

    Args:
        verb: As in a Role: get, list, watch, create, update, patch, delete ...
        resource: Such as `leases`; with a subresource `pods/eviction`.
        name: Of the object; empty for a list and a create.
        code: The answer's status.
        user: Who asked; empty where the server doesn't know that.
    """

    verb: str
    resource: str
    name: str
    code: int
    user: str


def audit_options(folder: Path, log: Path) -> dict[str, str]:
    """Have a server write its log, as it takes options."""
    policy = folder / "audit.json"
    policy.write_text(json.dumps(_POLICY), encoding="utf-8")
    return {"audit-policy-file": str(policy), "audit-log-path": str(log)}


def asked_in(log: Path, namespace: str) -> Iterator[Asked]:
    """What a server was asked of a namespace so far, in the order of answers.

    A request is in it a moment after its answer has come.
    """
    about = f'"namespace":"{namespace}"'
    with open(log, encoding="utf-8") as lines:
        for line in lines:
            # A line that is being written has no end yet.
            if about not in line or not line.endswith("\n"):
                continue
            event = json.loads(line)
            if (event["verb"] == "watch") is (event["stage"] == "ResponseStarted"):
                yield _asked(event)


def _asked(event: dict[str, dict[str, str]]) -> Asked:
    about = event["objectRef"]
    resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
    return Asked(
        str(event["verb"]),
        resource,
        about.get("name", ""),
        int(event["responseStatus"]["code"]),
        event["user"].get("username", ""),
    )
