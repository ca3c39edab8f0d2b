"""The plan of a `run`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from leasectl.leases.properties import is_variable
from leasectl.leases.service import AROUND, handles_around
from leasectl.model import Handle, Request

OnLost = Literal["term", "kill", "ignore"]

_OURS = (
    "LEASECTL_HANDLE",
    "LEASECTL_NAMES",
    "LEASECTL_TYPE",
    "LEASECTL_FENCE",
    "LEASECTL_ATTEMPT",
)


@dataclass(frozen=True)
class Plan:
    """What `run` is to do.

    Args:
        command: The command and its arguments.
        request: The lease to hold meanwhile.
        attempts: How often the command is started at most.
        retry_on: Exit codes after which it is started again, under a new lease.
        before_retry: A shell command to run in between, without a lease; None for none.
        on_reclaim: A shell command that decides for the holder when it is asked to give something
            back; None for none.
        on_lost: What the command gets when its lease is lost.
        start_jitter_seconds: With each lease in hand, wait a random time of up to this first.
        optional: Run the command also when no lease can be had.
        environ: The command's environment.
    """

    command: Sequence[str]
    request: Request
    attempts: int = 1
    retry_on: Collection[int] = ()
    before_retry: str | None = None
    on_reclaim: str | None = None
    on_lost: OnLost = "term"
    start_jitter_seconds: float = 0.0
    optional: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What messages call the command."""
        return self.command[0]

    def environ_of(self, attempt: int) -> dict[str, str]:
        """The environment of an attempt without a lease."""
        # The variables that an outer `run` set describe its lease, not ours.
        outer = {k: v for k, v in self.environ.items() if k not in _OURS and not is_variable(k)}
        return {**outer, "LEASECTL_ATTEMPT": str(attempt)}

    def environ_under(
        self,
        handle: Handle,
        names_path: str,
        attempt: int,
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, str]:
        """The environment of an attempt that has leases.

        Args:
            handle: What it has.
            names_path: Of the handle.
            attempt: Which it is, from 1.
            properties: What the leased resources are, as variables.
        """
        return {
            **self.environ_of(attempt),
            **properties,
            "LEASECTL_HANDLE": names_path,
            "LEASECTL_NAMES": ",".join(handle.names),
            "LEASECTL_TYPE": ",".join(handle.leased_types),
            "LEASECTL_FENCE": ",".join(handle.fences),
            AROUND: " ".join([*handles_around(self.environ), handle.id]),
        }
