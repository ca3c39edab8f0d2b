"""Addresses, requests and answers of Boskos: what they say, and what is made of it."""

from __future__ import annotations

import pytest

from leasectl.backends.boskos import requests
from leasectl.backends.boskos.connection import (
    Granted,
    check_allowed,
    check_is_boskos,
    granted,
    metric,
    verdict,
)
from leasectl.backends.boskos.requests import (
    BoskosAddress,
    login_headers,
    parse_boskos_url,
    type_of,
    with_login,
)
from leasectl.backends.kinds import renew_seconds
from leasectl.backends.unanswered import Loss, Refused
from leasectl.errors import (
    AccessRefused,
    BackendUnreachable,
    CanNeverBeMet,
    InvalidRequest,
    LeaseError,
    NotFound,
)
from leasectl.http.messages import Answer
from leasectl.http.settings import Settings, encode_settings, parse_settings
from leasectl.model import Handle, Request

URL = "http://boskos"
OWNER = "job/1/host/T-abcdef/2"


class TestAddresses:
    def test_an_address_alone_has_what_is_usual(self) -> None:
        found = parse_boskos_url("boskos+http://boskos.ci:8080/below/")
        assert found == BoskosAddress("http://boskos.ci:8080/below")
        assert (found.free, found.leased, found.release_to) == ("free", "leased", "free")
        assert (found.reaper_seconds, found.queue_seconds) == (1800.0, 30.0)

    def test_all_of_it_can_be_said(self) -> None:
        found = parse_boskos_url(
            "boskos+https://[::1]:1?state=a&leased=busy&release-to=dirty&expire=5m&queue-ttl=1m"
        )
        assert found == BoskosAddress("https://[::1]:1", "a", "busy", "dirty", 300.0, 60.0)

    @pytest.mark.parametrize(
        ("url", "why"),
        [
            ("boskos+http://", "not a URL"),
            ("boskos+ftp://h", "not a URL"),
            ("boskos+http://h#x", "not a URL"),
            ("boskos+http://h:65536", "has port 65536"),
            ("boskos+http://h:0", "has port 0"),
            ("boskos+http://h?expires=5m", "expires"),
            ("boskos+http://h?expire=5m&expire=6m", "twice"),
            ("boskos+http://h?expire=soon", "bad expire"),
            ("boskos+http://h?expire=1s", "less than 3s"),
            ("boskos+http://h?expire=", "bad expire"),
            ("boskos+http://h?state=a b", "state"),
            ("boskos+http://h?leased=free", "has leased=free, which is also"),
            ("boskos+http://h?free", "after the"),
        ],
    )
    def test_others_are_refused_with_what_is_wrong(self, url: str, why: str) -> None:
        with pytest.raises(InvalidRequest, match=why):
            parse_boskos_url(url)

    def test_a_password_in_one_is_refused_and_not_shown(self) -> None:
        with pytest.raises(InvalidRequest, match="LEASECTL_BOSKOS_USERNAME") as refused:
            parse_boskos_url("boskos+http://user:secret@h")
        assert "secret" not in str(refused.value)

    def test_a_lease_has_a_second_less_than_the_reaper_as_boskos_counts_in_whole_ones(self) -> None:
        assert parse_boskos_url("boskos+http://h?expire=10s").ttl_seconds == 9.0

    @pytest.mark.parametrize(("expire", "each"), [("30m", 30.0), ("91s", 30.0), ("7s", 2.0)])
    def test_it_is_renewed_at_a_third_of_that_and_each_30_s_at_the_latest(
        self, expire: str, each: float
    ) -> None:
        url = f"boskos+http://h?expire={expire}"
        ttl = parse_boskos_url(url).ttl_seconds
        handle = Handle("T-1", url, Request("T", ttl_seconds=ttl), "o", "o/T-1", "held", 1)
        assert renew_seconds(handle) == each
        assert renew_seconds(handle._replace(backend="etcd://h")) == ttl / 3


class TestRequests:
    ADDRESS = BoskosAddress(URL, release_to="dirty")

    def test_what_they_say_is_in_the_query(self) -> None:
        call = requests.acquire(self.ADDRESS, "T", OWNER, "r&1")
        owner = "owner=job%2F1%2Fhost%2FT-abcdef%2F2"
        query = f"type=T&state=free&dest=leased&{owner}&request_id=r%261"
        assert call == (f"{URL}/acquire?{query}", *call[1:])
        assert (call.method, call.body) == ("POST", b"")
        released = requests.release(self.ADDRESS, "T--00", OWNER)
        assert released.url == f"{URL}/release?name=T--00&dest=dirty&{owner}"
        updated = requests.update(self.ADDRESS, "T--00", OWNER)
        assert updated.url == f"{URL}/update?name=T--00&{owner}&state=leased"
        assert requests.metric(self.ADDRESS, "T")[:1] == (f"{URL}/metric?type=T",)

    def test_who_does_not_wait_has_no_request_id(self) -> None:
        assert "request_id" not in requests.acquire(self.ADDRESS, "T", OWNER, None).url

    def test_the_type_is_in_the_owner(self) -> None:
        assert type_of("job/1/host/us-east--slice-aB3xYz/12") == "us-east--slice"


class TestAnswers:
    @pytest.mark.parametrize(
        "text",
        [
            '{"type":"T","name":"T--00","state":"leased","owner":"o"}',
            '[{"type":"T","name":"T--00"}]',
        ],
    )
    def test_a_grant_names_it(self, text: str) -> None:
        assert granted(URL, Answer(200, text)) == Granted("T--00", "T")

    @pytest.mark.parametrize(
        "text",
        [
            "Acquire failed: no available resource T, try again later.\n",
            "No Available resource",
            "please TRY AGAIN",
        ],
    )
    def test_that_none_is_free_passes(self, text: str) -> None:
        assert granted(URL, Answer(404, text)) == "none free"

    @pytest.mark.parametrize(
        "text",
        ['Acquire failed: resource type "T" does not exist', "no such type", "Type doesn't exist"],
    )
    def test_that_there_is_no_such_type_does_not(self, text: str) -> None:
        with pytest.raises(NotFound):
            granted(URL, Answer(404, text))

    @pytest.mark.parametrize("text", ["", "404 page not found", "resource not found: T"])
    def test_where_the_words_are_new_neither_is_taken_for_granted(self, text: str) -> None:
        assert granted(URL, Answer(404, text)) == "unclear"

    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            (Answer(500, "conflict"), Loss),  # it may have been granted all the same
            (Answer(503, ""), Loss),
            (Answer(200, "{"), Loss),
            (Answer(200, '{"name":"../x"}'), Loss),
            (Answer(200, '[{"name":"a"},{"name":"b"}]'), Loss),
            (Answer(200, "[" * 100_000), Loss),
            (Answer(200, ""), BackendUnreachable),  # it says that to any path
            (Answer(302, ""), BackendUnreachable),  # it is something else that answers there
            (Answer(400, "Type: , must be set"), CanNeverBeMet),
            (Answer(429, "slowly"), Refused),
        ],
    )
    def test_other_answers(self, answer: Answer, error: type[LeaseError]) -> None:
        with pytest.raises(LeaseError) as raised:
            granted(URL, answer)
        assert type(raised.value) is error

    @pytest.mark.parametrize(
        ("status", "said"), [(200, "done"), (401, "not ours"), (409, "not ours"), (404, "gone")]
    )
    def test_what_came_of_an_update_or_a_release(self, status: int, said: str) -> None:
        assert verdict(URL, Answer(status, "")) == said

    def test_what_goes_wrong_at_boskos_is_no_verdict(self) -> None:
        with pytest.raises(Refused):
            verdict(URL, Answer(500, ""))

    def test_a_page_of_something_in_front_of_it_is_no_verdict(self) -> None:
        with pytest.raises(Refused):
            verdict(URL, Answer(200, "<html><body>Please log in.</body></html>"))

    def test_a_metric_is_read(self) -> None:
        told = metric(
            URL, "T", Answer(200, '{"type":"T","current":{"free":2},"owner":{"":1,"o":1}}')
        )
        assert (told.states, told.owners) == ({"free": 2}, {"": 1, "o": 1})
        assert (
            metric(URL, "T", Answer(200, '{"type":"T","current":null,"owner":null}')).owners == {}
        )

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"type":"T","current":1,"owner":{}}'])
    def test_something_else_is_none(self, text: str) -> None:
        with pytest.raises(Refused):
            metric(URL, "T", Answer(200, text))

    def test_401_of_who_asks_for_a_password_says_nothing_of_owners(self) -> None:
        ours = Answer(401, "owner mismatch request by a, currently owned by b")
        assert check_allowed(URL, ours) is ours
        page = "<html><body><h1>401 Authorization Required</h1></body></html>"
        for answer in (
            Answer(401, "", {"www-authenticate": "Basic"}),
            Answer(401, ours.text, {"www-authenticate": "Basic"}),
            Answer(401, page),
            Answer(403, ""),
        ):
            with pytest.raises(AccessRefused, match="LEASECTL_BOSKOS_USERNAME"):
                check_allowed(URL, answer)

    @pytest.mark.parametrize("answer", [Answer(200, ""), Answer(404, "type"), Answer(400, "bad")])
    def test_what_answers_otherwise_is_no_boskos(self, answer: Answer) -> None:
        with pytest.raises(BackendUnreachable, match="not a working Boskos"):
            check_is_boskos(URL, answer)


class TestLogin:
    def test_both_are_needed_and_the_password_stays_in_its_file(self, tmp_path: object) -> None:
        named = {
            "LEASECTL_BOSKOS_USERNAME": "me",
            "LEASECTL_BOSKOS_PASSWORD_FILE": f"{tmp_path}/password",
        }
        with open(f"{tmp_path}/password", "w") as file:
            file.write("s:e\n")
        settings = with_login(Settings(), named)
        assert login_headers(settings) == {"Authorization": "Basic bWU6czpl"}
        assert parse_settings(encode_settings(settings)) == settings
        assert "s:e" not in encode_settings(settings)
        assert login_headers(Settings()) == {}
        for each in named:
            with pytest.raises(InvalidRequest, match="set both or neither"):
                with_login(Settings(), {each: named[each]})
