"""The page on metrics, the alerts and the dashboard name metrics that the server has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit.serving import Serving
from tests.kit.support import Cli

pytestmark = pytest.mark.once

DOCS = Path(__file__).parents[3] / "docs"
ALERTS = DOCS / "alerts.yaml"
DASHBOARD = json.loads((DOCS / "grafana-dashboard.json").read_text())
PAGE = (DOCS / "metrics.md").read_text()
# Grafana's model of a dashboard, and what a panel of it needs:
# https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
OF_DASHBOARD = {
    *("id", "uid", "title", "tags", "timezone", "editable", "graphTooltip", "panels", "time"),
    *("timepicker", "templating", "annotations", "refresh", "schemaVersion", "version", "links"),
}
OF_PANEL = {"id", "type", "title", "datasource", "gridPos", "fieldConfig", "options", "targets"}
COLUMNS = 24  # of Grafana's grid


def documented() -> dict[str, str]:
    """The metrics of the page, with their types."""
    return dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE, re.MULTILINE))


def named_in(text: str) -> set[str]:
    """The metrics in a text; a histogram's series count as the histogram."""
    names = re.findall(r"leasectl_\w+", text)
    return {re.sub(r"(?<=_seconds)_(bucket|sum|count)$", "", name) for name in names}


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def test_page_has_every_metric_of_the_server_with_its_type(cli: Cli) -> None:
    cli.pool("T", "a")
    server = Serving(cli)
    found = dict(re.findall(r"^# TYPE (\w+) (\w+)$", server.get("/metrics"), re.MULTILINE))
    assert documented() == found


def test_alerts_and_dashboard_use_metrics_of_the_page() -> None:
    for text in (ALERTS.read_text(), *expressions()):
        assert named_in(text) <= set(documented())


def test_each_alert_has_what_prometheus_asks_for_and_is_in_the_page() -> None:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    for rule in group["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[smhd]", rule["for"])
    alerts = [rule["alert"] for rule in group["rules"]]
    assert alerts == re.findall(r"^\| `(Leasectl\w+)` \|", PAGE, re.MULTILINE)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool of Prometheus")
def test_promtool_accepts_alerts_and_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    queries = tmp_path / "queries.yaml"
    plain = [re.sub(r"\$__rate_interval", "5m", each) for each in expressions()]
    rules = [{"record": f"leasectl:query{n}", "expr": each} for n, each in enumerate(plain)]
    queries.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    subprocess.run(["promtool", "check", "rules", str(ALERTS), str(queries)], check=True)


def test_dashboard_has_the_shape_that_grafana_documents() -> None:
    assert set(DASHBOARD) >= OF_DASHBOARD
    assert DASHBOARD["id"] is None and 8 <= len(DASHBOARD["uid"]) <= 40
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert set(panel) >= OF_PANEL
        x, y, w, h = (panel["gridPos"][side] for side in "xywh")
        cells = {(column, row) for column in range(x, x + w) for row in range(y, y + h)}
        assert x + w <= COLUMNS and not cells & taken
        taken |= cells
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(DASHBOARD)))
    assert used == variables
