"""What is true of all tests of the backends, and the machines that some of them are on."""

from __future__ import annotations

from tests.kit.hosts import hosts as hosts
from tests.kit.kubernetes.hosts import kubernetes_hosts as kubernetes_hosts
from tests.kit.marks import once_below

# What they do as whole commands, other tests run on every Python.
pytest_collection_modifyitems = once_below(__file__)
