"""What is read of objects of the API into facts, and written of them."""

from __future__ import annotations

from typing import Any

import pytest

from leasectl.maintenance.controller import Settings
from leasectl.maintenance.facts import (
    Lease,
    Node,
    NodeWrite,
    Us,
    Wanted,
    draining,
    parse_wanted,
)
from leasectl.maintenance.objects import (
    REQUEST,
    REQUEST_WORD,
    Pod,
    lease_body,
    name_of,
    node_patch,
    parse_lease,
    parse_node,
    parse_pod,
    request_of,
    request_patch,
)

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (None, None),
        ("30m", Wanted(1800)),
        (" 90 ", Wanted(90)),
        ("1.5s", Wanted(2)),
        ("1", Wanted(1)),
        ("0.1s", Wanted(1)),
        ("3660d", Wanted(3660 * 86400)),
        ("0", Wanted(None)),
        ("", Wanted(None)),
        ("-5m", Wanted(None)),
        ("soon", Wanted(None)),
        ("11000d", Wanted(None)),
        ("9" * 5000, Wanted(None)),
        ("30m\n; rm -rf /", Wanted(None)),
        ("\u0663\u0660m", Wanted(None)),
    ],
)
def test_a_request_is_a_duration_of_more_than_nothing(
    text: str | None, wanted: Wanted | None
) -> None:
    assert parse_wanted(text) == wanted
    expected = None if wanted is None else wanted._replace(word="w")
    assert parse_wanted(text, "w") == expected


def test_the_longest_time_is_one_that_the_api_takes() -> None:
    wanted = parse_wanted("3660d")
    assert wanted is not None and wanted.seconds is not None
    assert wanted.seconds + Us("a").padding_seconds < 2**31


def test_a_reason_is_made_fit_to_show() -> None:
    assert draining("pod \x1b[2J") == "draining: pod \\x1b[2J"
    assert draining("x" * 200) == f"draining: {'x' * 200}"
    assert draining("x" * 201) == f"draining: {'x' * 199}\u2026"


@pytest.mark.parametrize(("length", "can"), [(248, True), (249, False)])
def test_a_name_may_be_too_long_for_a_lease(length: int, can: bool) -> None:
    why = Settings(Us("us"), "name-{node}").has_no_lease("n" * length)
    assert (why == "") is can
    assert can or "254 characters" in why


US = "machine-remediation"


Object = dict[str, Any]


NOW = 1_700_000_000.25


NOW_TEXT = "2023-11-14T22:13:20.250000Z"


# What no API server says, and what nobody may fall over.
ODD: tuple[Any, ...] = (None, "", [], "text", 7)


class TestNodes:
    @pytest.mark.parametrize("odd", ODD)
    def test_odd_ones_are_read_as_nothing(self, odd: Any) -> None:
        assert parse_node({"metadata": odd, "spec": odd}) == Node("")
        assert parse_node({"metadata": {"annotations": odd}}) == Node("")
        assert (name_of({"metadata": odd}), request_of({"metadata": odd})) == ("", None)
        assert not parse_node({"spec": {"unschedulable": odd}}).is_unschedulable

    def patch(self, write: NodeWrite) -> Object:
        said = {"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}, "spec": {}}
        patch = dict(node_patch(said, write, US))
        metadata = dict(patch["metadata"])
        assert (metadata.pop("uid"), metadata.pop("resourceVersion")) == ("u", "7")
        return {**patch, "metadata": metadata}

    def test_a_request_is_written_whatever_else_the_node_is(self) -> None:
        def annotations(text: str | None, word: str = "") -> Any:
            return request_patch(text, word)["metadata"]["annotations"]

        assert annotations("30m", "b") == {REQUEST: "30m", REQUEST_WORD: "b"}
        assert annotations("30m") == {REQUEST: "30m", REQUEST_WORD: None}
        assert annotations(None) == {REQUEST: None, REQUEST_WORD: None}


class TestLeases:
    LEASE = Lease(US, 1830, NOW, NOW + 1, 3, "node's uid")

    def test_one_is_read_as_it_was_written(self) -> None:
        body = lease_body(None, "window-a", self.LEASE, node="a")
        assert parse_lease(body) == self.LEASE
        assert body == {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": "window-a",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "node's uid"}
                ],
            },
            "spec": {
                "holderIdentity": US,
                "leaseDurationSeconds": 1830,
                "acquireTime": NOW_TEXT,
                "renewTime": NOW_TEXT.replace(":20.", ":21."),
                "leaseTransitions": 3,
            },
        }

    @pytest.mark.parametrize(("node", "uid"), [("", "u"), ("a", "")])
    def test_one_of_no_node_has_no_owner(self, node: str, uid: str) -> None:
        body = lease_body(None, "a", Lease(US, 60, NOW, owner_uid=uid), node=node)
        assert body["metadata"] == {"name": "a"}

    def test_what_others_have_written_there_stays(self) -> None:
        before: Object = {
            "metadata": {
                "name": "a",
                "uid": "u",
                "resourceVersion": "7",
                "labels": {"x": "y"},
                "managedFields": [{"manager": "kubectl"}],
                "ownerReferences": [{"kind": "Pod", "uid": "p"}],
            },
            "spec": {"strategy": "OldestEmulationVersion", "leaseDurationSeconds": 60},
        }
        body = lease_body(before, "a", Lease(US, 0, NOW))
        assert body["metadata"] == {
            "name": "a",
            "uid": "u",
            "resourceVersion": "7",
            "labels": {"x": "y"},
            "ownerReferences": [{"kind": "Pod", "uid": "p"}],
        }
        assert body["spec"]["strategy"] == "OldestEmulationVersion"
        assert "leaseDurationSeconds" not in body["spec"]
        assert before["metadata"]["managedFields"]  # what was read is as it was

    def test_its_node_is_the_first_node_that_owns_it(self) -> None:
        owners: list[Any] = [None, {"kind": "Pod", "uid": "p"}, {"kind": "Node", "uid": "n"}]
        said: Object = {"metadata": {"ownerReferences": owners}}
        assert parse_lease(said).owner_uid == "n"
        owners.insert(0, {"kind": "Node"})
        assert parse_lease(said).owner_uid == ""

    @pytest.mark.parametrize("odd", ODD)
    def test_odd_ones_are_read_as_nobodys(self, odd: Any) -> None:
        assert parse_lease({"metadata": odd, "spec": odd}) == Lease("", 0, None)
        spec = {"leaseDurationSeconds": odd, "acquireTime": odd, "leaseTransitions": odd}
        count = odd if isinstance(odd, int) else 0
        assert parse_lease({"spec": spec}) == Lease("", count, None, None, count)

    def test_a_count_below_0_is_none(self) -> None:
        assert parse_lease({"spec": {"leaseDurationSeconds": -5}}).duration_seconds == 0


class TestPods:
    def said(self, **facts: Any) -> Object:
        """A pod that a ReplicaSet has made."""
        owner = {"kind": facts.get("owner", "ReplicaSet"), "controller": facts.get("rules", True)}
        metadata = {"namespace": "n", "name": "a", "uid": "u", "ownerReferences": [owner]}
        metadata.update(facts.get("metadata", {}))
        return {"metadata": metadata, **{k: facts[k] for k in ("spec", "status") if k in facts}}

    @pytest.mark.parametrize(
        ("facts", "expected"),
        [
            ({}, {}),
            ({"owner": "DaemonSet"}, {"is_of_node": True}),
            ({"owner": "DaemonSet", "rules": False}, {"is_managed": False}),
            ({"metadata": {"ownerReferences": []}}, {"is_managed": False}),
            ({"metadata": {"ownerReferences": None}}, {"is_managed": False}),
            (
                {"metadata": {"annotations": {"kubernetes.io/config.mirror": ""}}},
                {"is_of_node": True},
            ),
            ({"metadata": {"deletionTimestamp": NOW_TEXT}}, {"is_ending": True}),
            ({"spec": {"volumes": [{"name": "x"}]}}, {}),
            ({"spec": {"volumes": [{"emptyDir": {}}]}}, {"has_local_data": True}),
            ({"spec": {"volumes": None}}, {}),
            ({"status": {"phase": "Running"}}, {}),
            ({"status": {"phase": "Succeeded"}}, {"has_finished": True}),
            ({"status": {"phase": "Failed"}}, {"has_finished": True}),
        ],
    )
    def test_one_is_what_kubectl_takes_it_for(self, facts: Object, expected: Object) -> None:
        assert parse_pod(self.said(**facts)) == Pod("n", "a", "u", **expected)

    def test_one_without_a_name_is_read_too(self) -> None:
        assert parse_pod({}) == Pod("", "", "", is_managed=False)
