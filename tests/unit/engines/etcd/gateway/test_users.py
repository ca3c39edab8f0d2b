"""How users of etcd are let in, or aren't; against real servers."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import httpx
import pytest

from leasectl.backends.etcd import EtcdBackend
from leasectl.backends.kinds import Context
from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.etcd.requests import encode, put, read
from leasectl.errors import (
    AccessRefused,
    BackendUnreachable,
    CorruptState,
    FileUnreadable,
    NotAllowed,
)
from leasectl.http.settings import Settings
from tests.kit.etcd.gateways import (
    PREFIX,
    READER,
    ROOT,
    LetIn,
    WriteUserFile,
    address,
    demand_no_users,
    demand_users,
    first_lines,
    read_something,
    refusal,
    tokens,
    write_something,
)
from tests.kit.etcd.server import EtcdServer, Security, etcd_server, reserve_port
from tests.kit.waits import eventually

TOKEN_SECONDS = 2


@pytest.fixture(scope="module")
def guarded() -> Iterator[EtcdServer]:
    """With users, whose tokens don't last."""
    with etcd_server(security=Security(token_seconds=TOKEN_SECONDS)) as server:
        demand_users(server, PREFIX)
        yield server


LetInAs = Callable[[tuple[str, str]], Gateway]


@pytest.fixture
def let_in_as(guarded: EtcdServer, user_file: WriteUserFile, let_in: LetIn) -> LetInAs:
    """Opens gateways to that server, as a user."""
    return lambda user: let_in(guarded, user_file=user_file(user))


class TestUsers:
    def test_a_user_is_let_in(self, let_in_as: LetInAs) -> None:
        gateway = let_in_as(ROOT)
        write_something(gateway)
        gateway.grant(4711, 60)
        assert gateway.keep_alive(4711)
        gateway.revoke(4711)
        assert not gateway.keep_alive(4711)

    def test_the_user_is_let_in_where_there_are_no_users(
        self,
        etcd: EtcdServer,
        user_file: WriteUserFile,
        let_in: LetIn,
    ) -> None:
        write_something(let_in(etcd, user_file=user_file(ROOT)))

    def test_who_names_no_user_is_told_how_to(self, guarded: EtcdServer, let_in: LetIn) -> None:
        text = refusal(let_in(guarded), NotAllowed)
        assert "user name is empty" in text
        assert "LEASECTL_USER_FILE" in text

    def test_a_wrong_password_is_refused_at_once_and_not_shown(
        self,
        guarded: EtcdServer,
        user_file: WriteUserFile,
        let_in: LetIn,
    ) -> None:
        for user in (("root", "wr0ng"), ("nobody", "wr0ng"), ("root", "wr0ng:word")):
            file = user_file(user)
            text = refusal(let_in(guarded, user_file=file), NotAllowed)
            assert file in text
            assert "wr0ng" not in text

    @pytest.mark.parametrize("content", ["", "\n", "root", "root:", ":s3cret", "root:s3cret\ntwo"])
    def test_a_file_that_holds_no_user_is_refused_and_not_shown(
        self, content: str, tmp_path: Path, guarded: EtcdServer, let_in: LetIn
    ) -> None:
        file = tmp_path / "user"
        file.write_text(content)
        text = refusal(let_in(guarded, user_file=str(file)), CorruptState)
        assert f"{file} doesn't hold user:password as its only line; LEASECTL_USER_FILE" in text
        assert "s3cret" not in text

    def test_a_file_that_is_no_text_or_not_there_is_refused(
        self, tmp_path: Path, guarded: EtcdServer, let_in: LetIn
    ) -> None:
        file = tmp_path / "user"
        text = refusal(let_in(guarded, user_file=str(file)), FileUnreadable)
        assert f"{file}: No such file or directory; LEASECTL_USER_FILE" in text
        file.write_bytes(b"root:\xff\xfe")
        text = refusal(let_in(guarded, user_file=str(file)), CorruptState)
        assert f"{file} doesn't hold user:password" in text

    def test_a_role_that_may_only_read_is_told_so(self, let_in_as: LetInAs) -> None:
        gateway = let_in_as(READER)
        read_something(gateway)
        text = refusal(gateway, NotAllowed)
        assert "permission denied" in text
        assert f"read and write all keys below {PREFIX}/" in text
        with pytest.raises(AccessRefused, match="permission denied"):
            gateway.read(read("/elsewhere"))

    def test_a_probe_finds_out_who_may_not_both_read_and_write(
        self,
        guarded: EtcdServer,
        user_file: WriteUserFile,
    ) -> None:
        def probe(user: tuple[str, str]) -> None:
            settings = Settings(user_file=user_file(user))
            EtcdBackend.open_probe(Context(address(guarded), settings))()

        probe(ROOT)
        for user in (READER, (ROOT[0], "wrong")):
            with pytest.raises(AccessRefused):
                probe(user)

    def test_a_password_that_was_changed_is_read_anew(
        self,
        guarded: EtcdServer,
        user_file: WriteUserFile,
        let_in: LetIn,
    ) -> None:
        gateway = let_in(guarded, user_file=user_file(("root", "wrong")))
        refusal(gateway, NotAllowed)
        user_file(ROOT)
        write_something(gateway)

    def test_users_may_be_demanded_and_no_longer_demanded_and_a_member_be_started_anew(
        self, user_file: WriteUserFile, let_in: LetIn
    ) -> None:
        with etcd_server() as server:
            gateway = let_in(server, user_file=user_file(ROOT))
            # Later ones don't look at a token that they don't need.
            refuses_tokens = gateway.status(0, 5).version.startswith("3.4.")
            for demand in (demand_users, None, None):
                write_something(gateway)
                with gateway.client() as client:
                    if demand is not None or refuses_tokens:
                        assert gateway.headers(client, 0, 5) == {}
                if demand is not None:
                    demand(server, PREFIX)
                    write_something(gateway)
                    assert len(tokens(gateway)) == 1
                    server.kill(0)
                    server.start(0)
                    write_something(gateway)
                    demand_no_users(server)


def test_a_token_that_has_expired_is_replaced_and_makes_no_answer_doubtful(
    let_in_as: LetInAs,
) -> None:
    gateway = let_in_as(ROOT)
    write_something(gateway)
    (before,) = tokens(gateway)
    assert tokens(gateway) == [before]
    with gateway.client() as client:
        headers = gateway.headers(client, 0, 5)
        while "canceled" not in first_lines(gateway, headers):
            # Each use makes it last. etcd looks for those that have expired once a second.
            time.sleep(TOKEN_SECONDS + 1.5)
        assert not gateway.commit((), [put(f"{PREFIX}/key", "value")]).repeated
        assert tokens(gateway) != [before]
        assert "canceled" not in first_lines(gateway, gateway.headers(client, 0, 5))


class TestMembers:
    def test_no_server_at_all_is_said_in_time(self, let_in: LetIn) -> None:
        port = reserve_port()
        with pytest.raises(BackendUnreachable, match=rf"127\.0\.0\.1:{port}.*etcd running"):
            write_something(let_in(f"etcd://127.0.0.1:{port}", 0.5))

    def test_a_token_is_good_at_every_member_and_a_cluster_without_a_quorum_is_said_in_time(
        self, user_file: WriteUserFile, let_in: LetIn
    ) -> None:
        with etcd_server(3) as server:
            demand_users(server, PREFIX)
            settings = {"user_file": user_file(ROOT)}
            gateway, hurried = let_in(server, **settings), let_in(server, 1.0, **settings)
            (before,) = tokens(gateway)
            # A member knows it as soon as it has applied what made it.
            eventually(lambda: all(takes(each, before) for each in server.endpoints))
            gone = gateway.current
            server.kill(gone)
            write_something(gateway)
            with gateway.client() as client:
                shown = gateway.headers(client, gateway.current, 5)
            assert list(shown.values()) == [before]
            server.signal((gone + 1) % 3, signal.SIGSTOP)
            since = time.monotonic()
            with pytest.raises(BackendUnreachable, match="do they have a quorum"):
                write_something(hurried)
            assert time.monotonic() - since > 0.9
            server.signal((gone + 1) % 3, signal.SIGCONT)
            write_something(gateway)


def takes(endpoint: str, token: str) -> bool:
    """Whether a member lets the owner of a token in."""
    body = {"key": encode(f"{PREFIX}/key")}
    headers = {"Authorization": token}
    answer = httpx.post(f"{endpoint}/v3/kv/range", json=body, headers=headers, trust_env=False)
    return answer.status_code == 200


def test_no_credential_gets_into_what_a_failure_says(let_in_as: LetInAs) -> None:
    gateway = let_in_as(READER)
    with pytest.raises(AccessRefused) as raised:
        write_something(gateway)
    (token,) = tokens(gateway)
    told: list[str] = []
    error: BaseException | None = raised.value
    while error is not None:
        told.append(repr(error))
        error = error.__cause__ or error.__context__
    assert not any(secret in text for secret in (token, READER[1]) for text in told)
