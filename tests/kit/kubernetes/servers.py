"""The API servers that tests make namespaces on: a given cluster's, or the tests' own."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import SkipTest

from tests.kit.kubernetes.api import Api, api_of
from tests.kit.kubernetes.control_plane import (
    ControlPlane,
    Programs,
    control_plane,
    find_programs,
    how_to_have_one,
)


class Kubernetes(NamedTuple):
    """API servers that tests make namespaces on.

    Args:
        administrators: Access to each, as somebody who may do everything.
        control_plane: The servers themselves; None for a given cluster.
    """

    administrators: Sequence[Api]
    control_plane: ControlPlane | None = None

    @property
    def own(self) -> ControlPlane:
        """The servers themselves; the test is skipped on a given cluster."""
        if self.control_plane is None:
            raise SkipTest("needs an API server of its own")
        return self.control_plane

    @property
    def signing_key(self) -> str | None:
        """The file with the key that tokens are signed with, if it is known."""
        return self.control_plane.signing_key if self.control_plane else None


def programs_or_skip() -> Programs:
    """The programs of a control plane; if they are missing, the test is skipped."""
    programs = find_programs()
    if programs is None:
        raise SkipTest(how_to_have_one())
    return programs


@contextlib.contextmanager
def kubernetes_servers() -> Iterator[Kubernetes]:
    """The cluster that `LEASECTL_TEST_KUBECONFIG` names, or else an API server of our own."""
    given = os.environ.get("LEASECTL_TEST_KUBECONFIG")
    if given:
        with tempfile.TemporaryDirectory() as folder:
            yield Kubernetes([api_of(given, Path(folder))])
    else:
        with own_servers(1) as servers:
            yield servers


@contextlib.contextmanager
def own_servers(size: int, wired: Collection[int] = ()) -> Iterator[Kubernetes]:
    """So many API servers that may be stopped, killed and started; some may be made to lag."""
    with control_plane(programs_or_skip(), size, wired) as servers:
        yield Kubernetes([servers.administrator(number) for number in range(size)], servers)
