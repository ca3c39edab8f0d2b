"""Several machines on one namespace: state directories whose leases come from the same pools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.engines.kubernetes.api.address import KubernetesAddress
from leasectl.engines.kubernetes.api.choice import choose, encode_choice
from leasectl.http.settings import Settings, encode_settings
from tests.kit.fork_server import load_everything
from tests.kit.kubernetes.access import Access
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.relay import Relay
from tests.kit.support import Cli


class KubernetesHosts:
    """State directories in one namespace, and a look at the pools from aside; as `Hosts`.

    Args:
        namespace: Where the pools are.
        folder: Where the state directories are made.

    Attributes:
        url: What `LEASECTL_BACKEND` says on all of them.
        access: The pools, as a participant without a state directory has them.
    """

    url = "kubernetes://"

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self._namespace = namespace
        self._folder = folder
        self._clis: list[Cli] = []
        kubeconfig = namespace.account.kubeconfig(folder / "kubeconfig")
        self.access = Access(kubeconfig, state_id="looks-on")

    def pool(self, *names: str, pool_type: str = "T") -> None:
        """Make a pool."""
        self.access.pools.create_pool(pool_type, names)

    def new(self, *, through: Relay | None = None, **env: str) -> Cli:
        """One more state directory.

        Args:
            through: What is between it and the API server; nothing, if not given.
            env: Further environment variables.
        """
        folder = self._folder / f"host-{len(self._clis)}"
        folder.mkdir()
        server = None if through is None else through.endpoint
        kubeconfig = self._namespace.account.kubeconfig(folder / "kubeconfig", server=server)
        cli = Cli(folder / "state", folder)
        cli.env["LEASECTL_BACKEND"] = self.url
        cli.env["LEASECTL_KUBECONFIG"] = str(kubeconfig)
        cli.env.update(env)
        self._clis.append(cli)
        return cli

    def is_free(self, pool_type: str = "T") -> bool:
        """Whether there are no holders and no waiters."""
        (pool,) = self.access.pools.pools(pool_type)
        return not pool.held and not pool.queue

    def close(self) -> None:
        for cli in self._clis:
            cli.close()


@pytest.fixture
def kubernetes_hosts(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesHosts]:
    """State directories in a namespace of the test's own; forked processes find that, too."""
    load_everything()
    found = KubernetesHosts(namespace, tmp_path)
    monkeypatch.setenv("LEASECTL_KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield found
    found.close()


def namespace_settings(namespace: Namespace, folder: Path) -> str:
    """How to talk to a namespace as its service account, as a record has it.

    Args:
        namespace: Which.
        folder: Where a kubeconfig is written.
    """
    kubeconfig = namespace.account.kubeconfig(folder / "kubeconfig")
    choice = choose(KubernetesAddress(kubeconfig=str(kubeconfig)), {})
    return encode_settings(Settings(cluster=encode_choice(choice)))
