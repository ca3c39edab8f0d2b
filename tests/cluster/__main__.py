"""``python -m tests.cluster``: faults on a cluster for as long as you like, and what came of it."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.cluster.participants import Habits
from tests.cluster.run import Run
from tests.cluster.schedule import plan
from tests.kit.etcd.server import etcd_server


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    options = parser.parse_args()
    history = Path(tempfile.mkdtemp(prefix="etcd-history-"), "history")
    print(f"seed {options.seed}, history in {history}", flush=True)
    with etcd_server(size=3) as server:
        run = Run(server, history, Habits())
        faults = plan(options.seed, options.minutes * 60)
        report = run.under_faults(faults, participants=options.clients, grants=1, seed=options.seed)
    for name, number in report.counts._asdict().items():
        print(f"{name}: {number}")
    print(f"violations: {len(report.violations)}")
    for violation in report.violations:
        print(f"  {violation}")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
