"""What doctor says of what was answered to a reclaim."""

from __future__ import annotations

from leasectl.doctor.findings import Finding
from leasectl.doctor.records import ready_to_be_taken
from leasectl.model import Request
from leasectl.state.uses import SeenMark, Uses
from leasectl.system.clock import boottime_seconds
from tests.kit.support import Cli


def found(cli: Cli, *, ends_in: float) -> Finding:
    """What is said of a name that is ready for a reclaim which ends then."""
    cli.pool("T", "a")
    handle = cli.hold(Request("T"))
    with cli.service() as service:
        with service.state.transaction():
            mark = SeenMark("id", "an operator", boottime_seconds() + ends_in, is_ready=True)
            Uses(service.state).see(handle, "a", mark)
        return ready_to_be_taken(service)


def test_what_is_ready_is_told(cli: Cli) -> None:
    finding = found(cli, ends_in=60.0)
    assert (finding.status, finding.what) == ("ok", "ready to take back: a")


def test_what_no_reclaim_has_come_for_in_time_is_a_warning(cli: Cli) -> None:
    finding = found(cli, ends_in=-100.0)
    assert finding.status == "warn"
    assert "no reclaim took the lease in time" in finding.what
