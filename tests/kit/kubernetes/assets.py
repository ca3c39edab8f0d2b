"""Where the tests have a kube-apiserver from, or why they have none."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

_BUILD = Path(__file__).parent / "apiserver" / "build"


class Programs(NamedTuple):
    """What a control plane consists of, as paths."""

    kube_apiserver: str
    etcd: str


def find_programs() -> Programs | None:
    """Find what `KUBEBUILDER_ASSETS` names, or else has been built here; None if it hasn't.

    Raises:
        FileNotFoundError: `KUBEBUILDER_ASSETS` is set, and there is no kube-apiserver in it.
    """
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if folder:
        etcd = Path(folder, "etcd")
        found = Programs(f"{folder}/kube-apiserver", str(etcd) if etcd.exists() else "etcd")
        if not os.access(found.kube_apiserver, os.X_OK):
            raise FileNotFoundError(f"KUBEBUILDER_ASSETS is set: no {found.kube_apiserver}")
        return found
    built = subprocess.run([_BUILD, "--where"], check=True, capture_output=True, text=True)
    found = Programs(built.stdout.rstrip("\n"), "etcd")
    return found if all(map(shutil.which, found)) else None


def how_to_have_one() -> str:
    """What somebody who misses it can do, in a line."""
    build = _BUILD.relative_to(Path(__file__).parents[3])
    return (
        f"no kube-apiserver: build it with {build} (some 5 minutes, once), "
        "or set KUBEBUILDER_ASSETS or LEASECTL_TEST_KUBECONFIG (tests/README.md)"
    )
