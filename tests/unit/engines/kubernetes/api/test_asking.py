"""What is asked again, and when; what isn't; and what somebody reads who gets no answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from leasectl.engines.kubernetes.api.address import NAMESPACES, Collection, leases
from leasectl.engines.kubernetes.api.refusals import (
    Absent,
    AlreadyExists,
    Busy,
    Conflict,
    LostAnswer,
)
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.errors import (
    AccessRefused,
    BackendUnreachable,
    CorruptState,
    InvalidRequest,
    NoNamespace,
    Unanswered,
)
from tests.kit.support import ManualClock, clock_without_stalls
from tests.unit.engines.kubernetes.api.conftest import Script
from tests.unit.engines.kubernetes.api.scripted import Cut, Hang, Reply, Said, Scripted, status

HERE = leases("ns")
LEASE = {"metadata": {"name": "a", "uid": "u1", "resourceVersion": "1"}}
OK = Said(body=LEASE)
OpenAt = Callable[..., Api]
WRITES: tuple[Callable[[Api], object], ...] = (
    lambda api: api.create(HERE, LEASE),
    lambda api: api.replace(HERE, "a", LEASE),
    lambda api: api.patch(HERE, "a", LEASE),
    lambda api: api.delete(HERE, "a"),
)


def read(api: Api) -> object:
    return api.get(HERE, "a")


def busy(seconds: str = "1") -> Said:
    """As priority and fairness has it: no object, plain text."""
    return Said(429, "Too many requests, please try again later.\n", (("Retry-After", seconds),))


class Paused:
    """Pauses that take no time, written down."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


class TestReads:
    @pytest.mark.parametrize(
        "failure",
        [
            Cut(),
            status(500, "InternalError"),
            status(503, "ServiceUnavailable"),
            status(504, "Timeout", retryAfterSeconds=1),
            Said(200, "no JSON"),
            Said(200, "[]"),
            Said(502, "<html>Bad gateway</html>"),
            Said(400, "400 Bad Request"),  # it came only in part, and Go's HTTP server says so
        ],
    )
    def test_they_are_asked_again(self, failure: Reply, script: Script, open_at: OpenAt) -> None:
        server, pause = script(failure, failure, OK), Paused()
        assert open_at(server, pause=pause).get(HERE, "a") == LEASE
        assert len(pause.seconds) == 2

    def test_a_server_that_hangs_is_asked_on_a_new_connection(
        self, script: Script, open_at: OpenAt
    ) -> None:
        server = script(Hang(), OK)
        assert open_at(server, attempt_seconds=0.2).get(HERE, "a") == LEASE
        assert server.connections > 1

    def test_they_end_with_their_deadline_and_say_why(
        self, script: Script, open_at: OpenAt
    ) -> None:
        since = time.monotonic()
        with pytest.raises(BackendUnreachable) as raised:
            open_at(script(status(500, "x", "etcd is away")), deadline_seconds=1.0).get(HERE, "a")
        assert time.monotonic() - since >= 1.0
        assert "answered 500: etcd is away; is the server up, and" in str(raised.value)

    def test_who_has_less_time_waits_no_longer(self, script: Script, open_at: OpenAt) -> None:
        fast = clock_without_stalls(rate=10.0)
        api = open_at(script(Hang()), attempt_seconds=0.1, clock=fast)
        began = fast.elapsed()
        with api.limited(0.0), pytest.raises(BackendUnreachable):
            api.get(HERE, "a")
        assert 2.9 < fast.elapsed() - began < 9.9  # an answer that takes three is waited for

    def test_nobody_asks_again_soon_after_nobody_has_answered(
        self, script: Script, open_at: OpenAt
    ) -> None:
        server = script(Cut())
        api = open_at(server, deadline_seconds=0.2, rest_seconds=60)
        for _ in range(2):
            with pytest.raises(BackendUnreachable):
                api.get(HERE, "a")
        before = len(server.asked)
        with pytest.raises(BackendUnreachable):
            api.get(HERE, "a")
        assert len(server.asked) == before

    def test_a_signal_ends_them_between_two_tries(self, script: Script, open_at: OpenAt) -> None:
        def pause(_seconds: float) -> None:
            raise Unanswered(15)

        server = script(Cut(), OK)
        with pytest.raises(Unanswered):
            open_at(server, pause=pause).get(HERE, "a")
        assert len(server.asked) == 1

    def test_a_server_that_is_none_is_asked_once(self, script: Script, open_at: OpenAt) -> None:
        server = script(Said(302, "", (("Location", "https://login/"),)))
        with pytest.raises(
            BackendUnreachable, match=r"answered 302 .*isn't an API server's answer"
        ):
            open_at(server).get(HERE, "a")
        other = script(Said(404, "404 page not found"))
        with pytest.raises(BackendUnreachable, match=r"has no leases.coordination.k8s.io \(404 pa"):
            open_at(other).list(HERE)
        third = script(Said(400, "Client sent an HTTP request to an HTTPS server.\n"))
        with pytest.raises(BackendUnreachable, match=r"answered 400 \(Client sent an HTTP req"):
            open_at(third).get(HERE, "a")
        assert len(server.asked) == len(other.asked) == len(third.asked) == 1


class TestWrites:
    @pytest.mark.parametrize(
        ("failure", "number"),
        [
            (Cut(), 0),
            (status(500, "InternalError", "two budgets"), 500),
            (status(504, "Timeout", retryAfterSeconds=1), 504),
            (Said(200, "no JSON"), 0),
        ],
    )
    def test_one_whose_answer_was_lost_is_not_repeated(
        self, failure: Reply, number: int, script: Script, open_at: OpenAt
    ) -> None:
        for write in WRITES:
            server = script(failure, OK)
            with pytest.raises(LostAnswer) as raised:
                write(open_at(server))
            assert raised.value.status == number
            assert len(server.asked) == 1
            assert "is unknown: check, and try again" in str(raised.value)

    def test_it_is_where_somebody_says_so(self, script: Script, open_at: OpenAt) -> None:
        server = script(Cut(), OK)
        made = open_at(server).replace(HERE, "a", LEASE, is_repeatable=True)
        assert (made, len(server.asked)) == (LEASE, 2)

    def test_a_server_that_hangs_has_an_attempt(self, script: Script, open_at: OpenAt) -> None:
        api = open_at(script(Hang()), attempt_seconds=0.2, deadline_seconds=1000.0)
        with pytest.raises(LostAnswer, match="no answer in time"):
            api.replace(HERE, "a", LEASE)

    def test_one_that_was_not_sent_is_repeated(self, script: Script, open_at: OpenAt) -> None:
        server = script(OK)
        server.close()
        pause = Paused()
        with pytest.raises(BackendUnreachable, match="Connection refused") as raised:
            open_at(server, deadline_seconds=0.2, pause=pause).create(HERE, LEASE)
        assert not isinstance(raised.value, LostAnswer)
        assert len(pause.seconds) > 1

    def test_what_guards_them_is_sent(self, script: Script, open_at: OpenAt) -> None:
        server = script(OK)
        api = open_at(server)
        api.delete(HERE, "a", uid="u1", resource_version="7")
        api.patch(Collection("v1", "nodes"), "n", {"spec": {}})
        api.create(Collection("v1", "pods", "ns"), {"k": 1}, name="p", subresource="eviction")
        delete, patch, create = server.asked
        assert delete.body["preconditions"] == {"uid": "u1", "resourceVersion": "7"}
        assert (patch.method, patch.path) == ("PATCH", "/api/v1/nodes/n")
        assert patch.headers["content-type"] == "application/merge-patch+json"
        assert (create.method, create.path) == ("POST", "/api/v1/namespaces/ns/pods/p/eviction")
        assert server.connections == 1


class TestBusy:
    def test_it_is_waited_for_as_long_as_the_server_says(
        self, script: Script, open_at: OpenAt
    ) -> None:
        for ask in (read, WRITES[0]):  # a write wasn't carried out
            server, pause = script(busy("7"), busy("2"), OK), Paused()
            assert ask(open_at(server, pause=pause)) == LEASE
            assert pause.seconds == [1.0] * 9

    def test_a_signal_is_heard_of_while_it_is_waited_for(
        self, script: Script, open_at: OpenAt
    ) -> None:
        paused: list[float] = []

        def pause(seconds: float) -> None:
            paused.append(seconds)
            if len(paused) == 3:
                raise Unanswered(15)

        with pytest.raises(Unanswered):
            open_at(script(busy("30")), pause=pause, busy_seconds=60).get(HERE, "a")
        assert sum(paused) == 3.0

    def test_but_not_beyond_what_who_asks_has(self, script: Script, open_at: OpenAt) -> None:
        server, pause = script(busy("30"), OK), Paused()
        api = open_at(server, pause=pause)
        with api.limited(0.0), pytest.raises(BackendUnreachable) as raised:
            api.get(HERE, "a")
        assert pause.seconds == []
        assert "is busy, and asks to try again in 30s: Too many requests" in str(raised.value)

    def test_nor_beyond_the_deadline_of_all_requests(self, script: Script, open_at: OpenAt) -> None:
        for ask in (read, WRITES[1]):
            server, pause = script(busy("32"), OK), Paused()
            with pytest.raises(BackendUnreachable, match="asks to try again in 32s"):
                ask(open_at(server, pause=pause, deadline_seconds=20))
            assert (pause.seconds, len(server.asked)) == ([], 1)

    def test_who_has_no_limit_waits_longer(self, script: Script, open_at: OpenAt) -> None:
        server, pause = script(busy("32"), OK), Paused()
        api = open_at(server, pause=pause, deadline_seconds=20)
        with api.limited(None):
            assert api.get(HERE, "a") == LEASE
        assert pause.seconds == [1.0] * 32

    def test_others_are_not_asked_for_a_while_where_many_would_wait(
        self, script: Script, open_at: OpenAt
    ) -> None:
        server = script(busy("32"), OK)
        api = open_at(server, deadline_seconds=3, rest_seconds=60)
        for _ in range(3):
            with pytest.raises(BackendUnreachable, match="asks to try again in 32s"):
                api.get(HERE, "a")
        assert len(server.asked) == 1

    def test_nor_for_ever(self, script: Script, open_at: OpenAt) -> None:
        with pytest.raises(BackendUnreachable, match="asks to try again in 1h"):
            open_at(script(busy("999999999"))).get(HERE, "a")

    @pytest.mark.parametrize("said", ["0", "-1", "soon", "", "Sun, 06 Nov 1994 08:49:37 GMT", "²"])
    def test_when_makes_no_sense_it_is_soon(
        self, said: str, script: Script, open_at: OpenAt
    ) -> None:
        server, pause = script(busy(said) if said != "²" else busy("%C2"), OK), Paused()
        assert open_at(server, pause=pause).get(HERE, "a") == LEASE
        (seconds,) = pause.seconds
        assert 0 < seconds < 1

    @pytest.mark.parametrize(
        ("refusal", "is_budget", "seconds"),
        [
            (
                status(
                    429,
                    "TooManyRequests",
                    "Cannot evict pod as it would violate the pod's disruption budget.",
                    causes=[{"reason": "DisruptionBudget", "message": "The budget b needs 1"}],
                ),
                True,
                None,
            ),
            # As of a webhook that moves what runs there away by itself.
            (status(429, "TooManyRequests", "Eviction triggered evacuation of it"), False, None),
            (busy("7"), False, 7.0),
        ],
        ids=["budget", "webhook", "busy"],
    )
    def test_what_forbids_an_eviction_now_is_its_askers_matter(
        self,
        script: Script,
        open_at: OpenAt,
        refusal: Said,
        is_budget: bool,
        seconds: float | None,
    ) -> None:
        server = script(refusal)
        with pytest.raises(Busy) as raised:
            open_at(server).create(
                Collection("v1", "pods", "ns"), {}, name="p", subresource="eviction"
            )
        assert (raised.value.is_budget, raised.value.retry_after_seconds) == (is_budget, seconds)
        assert len(server.asked) == 1


class TestRefusals:
    @pytest.mark.parametrize(
        ("reply", "kind"),
        [
            (status(404, "NotFound", name="a", kind="leases"), Absent),
            (status(409, "Conflict", name="a"), Conflict),
            (status(409, "AlreadyExists", name="a"), AlreadyExists),
            (status(413, "RequestEntityTooLarge"), InvalidRequest),
            (status(422, "Invalid"), InvalidRequest),
            (status(400, "BadRequest"), CorruptState),
        ],
    )
    def test_none_is_asked_again(
        self, reply: Reply, kind: type[Exception], script: Script, open_at: OpenAt
    ) -> None:
        server = script(reply)
        with pytest.raises(kind) as raised:
            open_at(server).replace(HERE, "a", LEASE)
        assert len(server.asked) == 1
        assert type(raised.value) is kind

    def test_what_the_server_says_is_made_printable_and_short(
        self, script: Script, open_at: OpenAt
    ) -> None:
        server = script(status(422, "Invalid", "\x1b[2J\n" + "x" * 5000))
        with pytest.raises(InvalidRequest) as raised:
            open_at(server).create(HERE, LEASE)
        assert str(raised.value).isprintable()
        assert len(str(raised.value)) < 500

    @pytest.mark.parametrize(
        "ask",
        [lambda api: api.create(HERE, LEASE), lambda api: api.get(NAMESPACES, "ns")],
        ids=["what is made there", "it"],
    )
    def test_a_namespace_that_is_not_there_is_named(
        self, script: Script, open_at: OpenAt, ask: Callable[[Api], object]
    ) -> None:
        missing = 'namespaces "ns" not found'
        server = script(status(404, "NotFound", missing, kind="namespaces", name="ns"))
        with pytest.raises(NoNamespace) as raised:
            ask(open_at(server))
        assert raised.value.exit_code == 64
        assert 'has no namespace "ns"; make it with: kubectl create namespace ns' in str(
            raised.value
        )

    @pytest.mark.parametrize(
        ("message", "line"),
        [
            (
                'leases.coordination.k8s.io is forbidden: User "bob" cannot create resource '
                '"leases" in API group "coordination.k8s.io" in the namespace "ns"',
                '"bob" is not allowed to create leases.coordination.k8s.io in namespace "ns", '
                "or the namespace is missing; a Role must allow it, as shown by: leasectl "
                "kubernetes manifest --namespace ns",
            ),
            (
                'leases is forbidden: User "system:serviceaccount:ns:ci" cannot create resource',
                '"system:serviceaccount:ns:ci" is not allowed to create '
                'leases.coordination.k8s.io in namespace "ns", or the namespace is missing; ask '
                "an administrator to run: "
                "leasectl kubernetes manifest --namespace ns --service-account ci | "
                "kubectl apply -f -",
            ),
            (
                'leases is forbidden: User "system:anonymous" cannot create resource "leases"',
                "nobody is allowed to create leases.coordination.k8s.io in namespace "
                '"ns" without a token or certificate; add one to the kubeconfig',
            ),
            (
                'leases "a" is forbidden: exceeded quota: q',
                "not allowed to create leases.coordination.k8s.io in namespace "
                '"ns": leases "a" is forbidden: exceeded quota: q',
            ),
        ],
    )
    def test_what_we_may_not_says_who_could_change_that(
        self, message: str, line: str, script: Script, open_at: OpenAt
    ) -> None:
        server = script(status(403, "Forbidden", message))
        with pytest.raises(AccessRefused) as raised:
            open_at(server).create(HERE, LEASE)
        assert raised.value.exit_code == 77
        assert str(raised.value) == f"{server.url}: {line}"


class TestStarting:
    """A server that has just begun knows nobody's rights and nobody's tokens yet."""

    @pytest.mark.parametrize("code", [401, 403])
    @pytest.mark.parametrize("unready", [Said(500, "[-]rbac failed"), Cut()])
    def test_what_it_refuses_before_it_is_ready_is_asked_again(
        self, code: int, unready: Reply, script: Script, open_at: OpenAt
    ) -> None:
        for ask in (read, WRITES[1]):
            server, pause = script(status(code, "x"), status(code, "x"), OK), Paused()
            server.ready = [unready]
            assert ask(open_at(server, pause=pause)) == LEASE
            assert len(pause.seconds) == 2

    def test_once_it_is_that_counts(self, script: Script, open_at: OpenAt) -> None:
        server, pause = script(status(403, "Forbidden")), Paused()
        server.ready = [Said(500), Said(body="ok")]
        with pytest.raises(AccessRefused):
            open_at(server, pause=pause).get(HERE, "a")
        assert (len(server.asked), len(pause.seconds)) == (2, 1)

    def test_where_nobody_may_ask_that_it_counts_in_the_end(
        self, script: Script, open_at: OpenAt
    ) -> None:
        server = script(status(403, "Forbidden"))
        server.ready = [status(403, "Forbidden")]
        since = time.monotonic()
        with pytest.raises(AccessRefused):
            open_at(server, deadline_seconds=1.0).get(HERE, "a")
        assert time.monotonic() - since > 0.9

    def test_nor_is_that_waited_for_for_long(
        self, script: Script, open_at: OpenAt, manual_clock: ManualClock
    ) -> None:
        server = script(status(403, "Forbidden"))
        server.ready = [Said(500)]
        began = manual_clock.clock.elapsed()
        api = open_at(
            server, deadline_seconds=60, clock=manual_clock.clock, pause=manual_clock.advance
        )
        with pytest.raises(AccessRefused):
            api.get(HERE, "a")
        assert 5 <= manual_clock.clock.elapsed() - began < 7


class TestLists:
    def test_pages_are_of_one_list(self, script: Script, open_at: OpenAt) -> None:
        first = {"items": [{"n": 1}], "metadata": {"resourceVersion": "5", "continue": "c&1"}}
        last = {"items": [{"n": 2}], "metadata": {"resourceVersion": "5"}}
        server = script(Said(body=first), Said(body=last))
        listed = open_at(server).list(HERE, labels="a=b,c", fields="metadata.name=x")
        assert listed == (({"n": 1}, {"n": 2}), "5")
        selected = {"limit": "500", "labelSelector": "a=b,c", "fieldSelector": "metadata.name=x"}
        assert [each.query for each in server.asked] == [selected, {**selected, "continue": "c&1"}]

    def test_one_that_was_forgotten_is_begun_anew(self, script: Script, open_at: OpenAt) -> None:
        first = Said(body={"items": [{}], "metadata": {"resourceVersion": "5", "continue": "c"}})
        gone = status(410, "Expired")
        all_of_it = Said(body={"items": None, "metadata": {"resourceVersion": "9"}})
        server = script(first, gone, all_of_it)
        assert open_at(server).list(HERE) == ((), "9")
        for_ever = script(*[first, gone] * 10)
        with pytest.raises(BackendUnreachable, match="changes while it is read"):
            open_at(for_ever).list(HERE)

    @pytest.mark.parametrize(
        "body",
        [
            {"items": 3, "metadata": {}},
            {"items": []},
            {"items": [], "metadata": 3},
            {"items": [{}, 1], "metadata": {}},
        ],
    )
    def test_what_is_no_list_is_none(self, body: Any, script: Script, open_at: OpenAt) -> None:
        with pytest.raises(BackendUnreachable, match="the answer is not a list"):
            open_at(script(Said(body=body)), deadline_seconds=0.5).list(HERE)

    def test_one_that_is_too_long_is_given_up(
        self, script: Script, open_at: OpenAt, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("leasectl.engines.kubernetes.api.requests._LONGEST_LIST", 1 << 20)
        page = Said(body={"items": [{"a": "x" * 400_000}], "metadata": {"continue": "more"}})
        server = script(page)
        with pytest.raises(BackendUnreachable, match="the list is longer than 1 MiB"):
            open_at(server).list(HERE)
        assert len(server.asked) == 3

    def test_one_that_takes_too_long_is_given_up(
        self, script: Script, open_at: OpenAt, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("leasectl.engines.kubernetes.api.requests._LIST_SECONDS", 0.0)
        page = Said(body={"items": [], "metadata": {"continue": "more"}})
        server = script(page)
        with pytest.raises(BackendUnreachable, match="the list took longer than 0 s"):
            open_at(server).list(HERE)
        assert len(server.asked) == 1

    def test_nobody_is_sent_elsewhere_with_a_token(self, script: Script, open_at: OpenAt) -> None:
        other = script(Said(body={"items": [], "metadata": {}}))
        for code in (301, 302, 307, 308):
            there = (("Location", f"{other.url}/x"),)
            with pytest.raises(BackendUnreachable, match=f"answered {code}"):
                open_at(script(Said(code, "", there))).list(HERE)
        assert other.asked == []


def test_connections_are_kept(script: Script, open_at: OpenAt) -> None:
    server: Scripted = script(OK)
    api = open_at(server)
    for _ in range(5):
        api.get(HERE, "a")
    assert server.connections == 1
    assert server.asked[0].headers["authorization"] == "Bearer t"
    assert server.asked[0].headers["accept-encoding"] == "identity"
    api.close()
