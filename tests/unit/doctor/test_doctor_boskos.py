"""What ``leasectl doctor`` says of Boskos."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.boskos.any_boskos import AnyBoskos
from tests.kit.doctor_reports import doctor
from tests.kit.support import Cli

pytestmark = pytest.mark.once


def test_one_that_answers_is_fine_and_nothing_is_taken(cli: Cli, any_boskos: AnyBoskos) -> None:
    found = doctor(cli, LEASECTL_BACKEND=any_boskos.backend())
    assert found.code == 0
    assert found["Boskos access"]["what"] == "without a user, without TLS"
    assert found["Boskos answer"]["what"].startswith("Boskos answered in")
    assert "for 30m; leasectl renews every 30s" in found["Boskos reaper"]["what"]
    assert any_boskos.owners == {}


@pytest.mark.parametrize(
    ("query", "why"),
    [("", "doesn't say when"), ("?leased=ours&expire=5m", "--extra-source-states")],
)
def test_what_nobody_can_look_up_is_warned_of(
    cli: Cli, any_boskos: AnyBoskos, query: str, why: str
) -> None:
    found = doctor(cli, LEASECTL_BACKEND=f"boskos+{any_boskos.url}{query}")
    assert (found.code, found["Boskos reaper"]["status"]) == (0, "warn")
    assert why in found["Boskos reaper"]["what"]


def test_one_that_is_not_there_and_what_is_none_fail_it(cli: Cli, any_boskos: AnyBoskos) -> None:
    nobody = doctor(cli, LEASECTL_BACKEND="boskos+http://127.0.0.1:9")
    assert (nobody.code, nobody["Boskos answer"]["status"]) == (69, "fail")
    elsewhere = doctor(cli, LEASECTL_BACKEND=f"boskos+{any_boskos.url}/nowhere")
    assert (elsewhere.code, elsewhere["Boskos answer"]["advice"]) == (
        69,
        "check the path in its URL",
    )


def test_what_was_taken_back_from_a_handle_here_is_found(cli: Cli, any_boskos: AnyBoskos) -> None:
    cli.env["LEASECTL_BACKEND"] = any_boskos.backend()
    handle = cli("acquire", "-q", any_boskos.type, "--ttl", "30m").handle
    assert doctor(cli)["Boskos leases"]["status"] == "ok"
    any_boskos.reap(Path(handle).read_text())
    found = doctor(cli)["Boskos leases"]
    assert (found["status"], Path(handle).name in found["what"]) == ("fail", True)
