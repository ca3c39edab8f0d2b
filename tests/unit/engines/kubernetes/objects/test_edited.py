"""What hands have changed of an object: what its annotations tell counts, and is written again."""

from __future__ import annotations

import copy
from typing import Any, Callable

import pytest

from leasectl.engines.kubernetes.edited import as_it_counts
from leasectl.engines.kubernetes.names import CLAIM, CLAIM_LABEL, KIND, NAME, POOL, object_of_pool
from leasectl.engines.rules.membership import cordon, expect, move
from leasectl.errors import LeaseError
from leasectl.model import Claimant, Request
from tests.kit.kubernetes.made_up_api import MadeUpApi
from tests.kit.kubernetes.made_up_process import Process
from tests.kit.pool_changes import add_resources
from tests.kit.support import ManualClock

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def api(manual_clock: ManualClock) -> MadeUpApi:
    """A namespace with one of each: held and free, waiting, only expected, renewed, cordoned."""
    api = MadeUpApi()
    process = Process(api, manual_clock.clock)
    process.pools.create_pool("Big_Pool", ["a", "b", "C_1"])
    process.acquire("h/1", Request("Big_Pool", name="a", ttl_seconds=60, labels=(("k", "v"),)))
    manual_clock.advance(0.123_456_7)
    process.engine.renew("h/1")
    process.acquire("h/2", Request("Big_Pool", name="C_1", ttl_seconds=2.5))
    process.engine.free("h/2")
    members = process.opened.members
    members.update(("b",), lambda member, _: cordon(member, is_cordoned=True))
    members.update(("x",), lambda member, pools: expect(member, "Big_Pool", pools))
    claimant = Claimant("h/3", "job/1/host/h-3", Request("Big_Pool", name="a", ttl_seconds=9))
    waiter = process.engine.waiter(claimant, until=None)
    waiter.enqueue()
    assert waiter.claim().leases is None
    process.pools.create_pool("U", ["u"])
    members.update(("a",), lambda member, pools: move(member, "U", pools, when_free=True))
    return api


def test_what_nobody_has_edited_is_left_alone(api: MadeUpApi) -> None:
    assert len(api.objects) == 8
    assert [name for name, raw in api.objects.items() if as_it_counts(raw)] == []


EDITS: dict[str, Edit] = {
    "kind": lambda raw: raw["metadata"]["labels"].pop(KIND),
    "another kind": lambda raw: raw["metadata"]["labels"].update({KIND: "value"}),
    "all labels": lambda raw: raw["metadata"].pop("labels"),
    "pool": lambda raw: raw["metadata"]["labels"].update({POOL: "another"}),
}


@pytest.mark.parametrize("edit", EDITS)
def test_labels_are_put_back_and_nothing_else_is_touched(api: MadeUpApi, edit: str) -> None:
    for raw in api.objects.values():
        edited = copy.deepcopy(raw)
        EDITS[edit](edited)
        body = as_it_counts(edited)
        assert body is not None
        assert body["metadata"]["labels"] == raw["metadata"]["labels"]
        assert body["metadata"]["annotations"] == raw["metadata"]["annotations"]
        assert body["spec"] == raw["spec"]
        assert as_it_counts(body) is None


@pytest.mark.parametrize(
    "edit",
    [
        lambda raw: raw["spec"].pop("holderIdentity"),
        lambda raw: raw["spec"].update(holderIdentity="somebody"),
        lambda raw: raw["spec"].update(leaseDurationSeconds=1),
        lambda raw: raw["spec"].pop("renewTime"),
        lambda raw: raw["metadata"]["labels"].pop(CLAIM_LABEL),
    ],
)
def test_a_holder_is_shown_again_as_its_claim_says(api: MadeUpApi, edit: Edit) -> None:
    edited = copy.deepcopy(api.objects["a"])
    edit(edited)
    body = as_it_counts(edited)
    assert body is not None
    for part in ("metadata", "spec"):
        for key, value in api.objects["a"][part].items():
            assert body[part][key] == value or key in ("managedFields",)


@pytest.mark.parametrize(
    "edit",
    [
        lambda raw: raw["metadata"].pop("annotations"),
        lambda raw: raw["metadata"]["annotations"].update({NAME: "another"}),
        lambda raw: raw["metadata"]["annotations"].update({CLAIM: "{"}),
    ],
)
def test_what_the_annotations_do_not_tell_is_not_made_up(api: MadeUpApi, edit: Edit) -> None:
    edited = copy.deepcopy(api.objects["a"])
    edited["metadata"]["labels"].pop(POOL)
    edit(edited)
    assert as_it_counts(edited) is None


class TestANameThatIsTaken:
    """Who makes something says why it can't, and what to do."""

    @pytest.mark.parametrize(
        ("edit", "code", "said"),
        [
            (lambda raw: raw["metadata"].pop("labels"), 77, "restore it with: leasectl doctor"),
            (lambda raw: raw["metadata"].pop("annotations"), 65, "kubectl delete lease -n ns "),
            (EDITS["another kind"], 77, "restore it with"),
            (lambda raw: raw.update(metadata={**raw["metadata"], "labels": {}}), 77, "restore it"),
            (
                lambda raw: raw["metadata"].update(labels={}, annotations={}),
                77,
                "not made by leasectl",
            ),
            (
                lambda raw: raw["metadata"].update(labels={KIND: "zebra"}, annotations={}),
                65,
                "made by a newer version of leasectl",
            ),
        ],
    )
    def test_by_what_was_edited(
        self, api: MadeUpApi, manual_clock: ManualClock, edit: Edit, code: int, said: str
    ) -> None:
        edit(api.objects["b"])
        before = copy.deepcopy(api.objects)
        with pytest.raises(LeaseError) as raised:
            add_resources(Process(api, manual_clock.clock).members, "Big_Pool", ["b"])
        assert raised.value.exit_code == code
        assert said in str(raised.value)
        assert api.objects == before

    @pytest.mark.parametrize("edit", ["kind", "pool", "all labels"])
    def test_a_pool_whose_lease_was_edited_is_missed_and_not_never_heard_of(
        self, api: MadeUpApi, manual_clock: ManualClock, edit: str
    ) -> None:
        EDITS[edit](api.objects[object_of_pool("Big_Pool")])
        with pytest.raises(LeaseError, match=r"although it has 3 resources: Lease .* was edited"):
            Process(api, manual_clock.clock).pools.pools("Big_Pool")

    def test_so_is_one_whose_lease_was_deleted(
        self, api: MadeUpApi, manual_clock: ManualClock
    ) -> None:
        del api.objects[object_of_pool("Big_Pool")]
        with pytest.raises(LeaseError, match=r"although it has 3 resources: Lease .* was deleted"):
            Process(api, manual_clock.clock).acquire("h/9", Request("Big_Pool"))
        with pytest.raises(LeaseError, match='no pool "Other"'):
            Process(api, manual_clock.clock).acquire("h/9", Request("Other"))
