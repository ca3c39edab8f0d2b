"""Objects of the API, read into facts and written: whatever somebody has put there."""

from __future__ import annotations

from typing import Any

import pytest

from leasectl.maintenance.facts import Lease, Node, NodeWrite, Wanted, Window
from leasectl.maintenance.objects import (
    BEGUN_BY,
    BEGUN_WORD,
    CORDON_MARK,
    REQUEST,
    REQUEST_WORD,
    STATUS,
    Pod,
    lease_body,
    name_of,
    node_patch,
    parse_lease,
    parse_node,
    parse_pod,
    parse_time,
    request_of,
    request_patch,
    wanted_of,
    word_of,
)

pytestmark = pytest.mark.once

US = "machine-remediation"
Object = dict[str, Any]
NOW = 1_700_000_000.25
NOW_TEXT = "2023-11-14T22:13:20.250000Z"
# What no API server says, and what nobody may fall over.
ODD: tuple[Any, ...] = (None, "", [], "text", 7)


class TestNodes:
    def test_one_shows_what_is_noted_at_it(self) -> None:
        noted = {REQUEST: "30m", STATUS: "active", CORDON_MARK: US, "else": "x"}
        said = {
            "metadata": {"name": "a", "uid": "u", "annotations": noted},
            "spec": {"unschedulable": True},
        }
        assert parse_node(said) == Node("u", "active", True, US)
        assert name_of(said) == "a"
        assert request_of(said) == "30m"
        assert wanted_of(said) == Wanted(1800)
        noted.update({REQUEST_WORD: "b", BEGUN_BY: "them", BEGUN_WORD: "a"})
        assert parse_node(said).window == Window("them", "a")
        assert wanted_of(said) == Wanted(1800, "b")
        assert word_of(said) == "b"
        noted[BEGUN_WORD] = ""
        assert parse_node(said).window == Window("them", "")
        noted[BEGUN_BY] = ""
        assert parse_node(said).window is None

    def test_one_with_nothing_shows_nothing(self) -> None:
        said: Object = {"metadata": {"name": "a", "uid": "u"}, "spec": {"unschedulable": False}}
        assert parse_node(said) == Node("u")
        assert (request_of(said), wanted_of(said)) == (None, None)
        said["metadata"]["annotations"] = {REQUEST: ""}
        assert (request_of(said), wanted_of(said)) == ("", Wanted(None))

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

    @pytest.mark.parametrize(
        ("write", "annotations", "spec"),
        [
            (NodeWrite("active"), {STATUS: "active"}, None),
            (
                NodeWrite("new", "cordon", begins="b"),
                {STATUS: "new", CORDON_MARK: US, BEGUN_BY: US, BEGUN_WORD: "b"},
                {"unschedulable": True},
            ),
            (NodeWrite("new", begins=""), {STATUS: "new", BEGUN_BY: US, BEGUN_WORD: ""}, None),
            (
                NodeWrite("ended", "uncordon", ends=True, removes_request=True),
                {
                    STATUS: "ended",
                    **dict.fromkeys((REQUEST, REQUEST_WORD, CORDON_MARK, BEGUN_BY, BEGUN_WORD)),
                },
                {"unschedulable": None},
            ),
            (NodeWrite(""), {STATUS: None}, None),
            (NodeWrite("ended", "disown"), {STATUS: "ended", CORDON_MARK: None}, None),
        ],
    )
    def test_a_change_touches_what_it_is_about_and_nothing_else(
        self, write: NodeWrite, annotations: Object, spec: Object | None
    ) -> None:
        expected: Object = {"metadata": {"annotations": annotations}}
        if spec is not None:
            expected["spec"] = spec
        assert self.patch(write) == expected

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
        assert parse_lease(body, 7.5) == self.LEASE._replace(unchanged_seconds=7.5)
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

    def test_one_that_is_given_back_has_no_duration_and_0_transitions_are_said(self) -> None:
        spec = lease_body(None, "a", Lease(US, 0, None, NOW))["spec"]
        assert spec == {"holderIdentity": US, "renewTime": NOW_TEXT, "leaseTransitions": 0}

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

    @pytest.mark.parametrize(
        ("text", "at"),
        [
            (NOW_TEXT, NOW),
            ("2023-11-14T22:13:20Z", NOW - 0.25),
            ("2023-11-14T23:13:20.250000+01:00", NOW),
            ("2023-11-14T22:13:20.250000", NOW),
            ("0001-01-01T00:00:00Z", -62135596800.0),
            ("soon", None),
            ("", None),
            (None, None),
            (7, None),
        ],
    )
    def test_a_time_is_one_of_the_api_or_none(self, text: object, at: float | None) -> None:
        assert parse_time(text) == at


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

    def test_one_is_called_with_its_namespace(self) -> None:
        assert str(Pod("n", "a", "u")) == "n/a"
        assert Pod("n", "a", "u")[3:] == (False, True, False, False, False)

    def test_one_without_a_name_is_read_too(self) -> None:
        assert parse_pod({}) == Pod("", "", "", is_managed=False)
