"""What ``leasectl doctor`` says of a lease proxy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.doctor_reports import doctor
from tests.kit.faults.process import StartFaultProxy
from tests.kit.serving import Serving
from tests.kit.support import Cli

pytestmark = pytest.mark.once

NOBODY = "http://127.0.0.1:9"  # discard: nothing listens there


def test_one_that_answers_is_fine_and_nothing_is_taken(
    cli: Cli, fault_proxy: StartFaultProxy
) -> None:
    proxy = fault_proxy("T=1")
    found = doctor(cli, LEASE_PROXY_SERVER_URL=proxy.url)
    assert found.code == 0
    assert found["proxy access"]["what"] == "without a token, without TLS"
    assert re.fullmatch("a lease proxy answered in [0-9]+ ms", found["proxy answer"]["what"])
    assert found["proxy token"]["what"] == "no token set; ci-operator's proxy needs none"
    assert {each["method"] for each in proxy.history().of("request")} == {"GET"}
    assert proxy.leased == []


def test_one_that_isnt_there_fails_it(cli: Cli) -> None:
    finished = cli("doctor", LEASE_PROXY_SERVER_URL=NOBODY)
    assert finished.code == 69
    assert "fail  proxy answer" in finished.out
    assert f"can't reach {NOBODY}" in finished.out
    assert "-> is the server there?" in finished.out


def test_so_does_one_that_doesnt_answer(cli: Cli, fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=1", faults=("hang",))
    found = doctor(cli, LEASE_PROXY_SERVER_URL=proxy.url)
    assert (found.code, found["proxy answer"]["status"]) == (69, "fail")
    assert "no answer" in found["proxy answer"]["what"]
    assert "proxy token" not in found.checks  # it would only take as long again


@pytest.mark.parametrize("rule", ["404 path=acquire", "503 path=acquire"])
def test_so_does_what_is_no_lease_proxy(cli: Cli, fault_proxy: StartFaultProxy, rule: str) -> None:
    proxy = fault_proxy("T=1", faults=(rule,))
    found = doctor(cli, LEASE_PROXY_SERVER_URL=proxy.url)
    assert (found.code, found["proxy answer"]["status"]) == (69, "fail")
    assert "not a working lease proxy" in found["proxy answer"]["what"]
    assert found["proxy answer"]["advice"] == "check the address"


class TestTokens:
    @pytest.fixture
    def token(self, tmp_path: Path) -> Path:
        path = tmp_path / "token"
        path.write_text("s3cret\n")
        return path

    def test_of_serve_it_is_told_whether_ours_will_do(
        self, cli: Cli, tmp_path: Path, token: Path
    ) -> None:
        cli.pool("T", "only")
        server = Serving(cli, "--token-file", str(token))
        cli.env["LEASE_PROXY_SERVER_URL"] = server.url
        accepted = doctor(cli, LEASECTL_TOKEN_FILE=str(token))
        assert accepted.code == 0
        assert accepted["proxy token"]["what"].startswith("accepted; leasectl serve")
        none = doctor(cli)
        assert (none.code, none["proxy token"]["status"]) == (77, "fail")
        assert "LEASECTL_TOKEN_FILE" in none["proxy token"]["advice"]
        token.with_name("other").write_text("guess")
        wrong = doctor(cli, LEASECTL_TOKEN_FILE=str(token.with_name("other")))
        assert (wrong.code, wrong["proxy token"]["status"]) == (77, "fail")
        assert "other" in wrong["proxy token"]["advice"]

    def test_of_another_it_cant_be_told(
        self, cli: Cli, fault_proxy: StartFaultProxy, token: Path
    ) -> None:
        url = fault_proxy("T=1").url
        found = doctor(cli, LEASE_PROXY_SERVER_URL=url, LEASECTL_TOKEN_FILE=str(token))
        assert found["proxy token"]["what"].startswith("not checked: ci-operator's proxy")
        assert str(token) in found["proxy access"]["what"]
