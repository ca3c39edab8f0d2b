"""The format number of pools in etcd and Kubernetes."""

from __future__ import annotations

# docs/etcd.md and docs/kubernetes-objects.md describe it.
FORMAT = 1
