"""The recipes for CI systems, run as those systems run them."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit.support import Cli, Started
from tests.kit.waits import eventually

pytestmark = pytest.mark.once

PAGE = Path(__file__).parents[3] / "docs" / "recipes.md"
GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_REPOSITORY": "o/r",
    "GITHUB_WORKFLOW": "ci",
    "GITHUB_JOB": "install",
    "GITHUB_RUN_ID": "12",
    "GITHUB_RUN_ATTEMPT": "1",
    "GITHUB_SERVER_URL": "https://github.com",
}
GITLAB = {
    "GITLAB_CI": "true",
    "CI_PROJECT_PATH": "g/p",
    "CI_JOB_NAME": "install",
    "CI_JOB_ID": "77",
    "CI_JOB_URL": "https://gitlab.example/g/p/-/jobs/77",
}
JENKINS = {"JOB_NAME": "folder/job", "BUILD_ID": "4", "BUILD_URL": "http://jenkins/4/"}
BUILDKITE = {
    "BUILDKITE": "true",
    "BUILDKITE_ORGANIZATION_SLUG": "o",
    "BUILDKITE_PIPELINE_SLUG": "p",
    "BUILDKITE_BUILD_NUMBER": "5",
    "BUILDKITE_JOB_ID": "0a1b",
    "BUILDKITE_BUILD_URL": "https://buildkite.com/o/p/builds/5",
}
PROW = {
    "JOB_NAME": "e2e",
    "BUILD_ID": "17",
    "CLUSTER_PROFILE_SET_NAME": "openshift-org-gcp",
    "CLUSTER_PROFILE_NAME": "gcp",
}


def block(heading: str) -> str:
    """The only block below a heading."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (text,) = re.findall(r"```(?:yaml|groovy)\n(.*?)```", section, re.DOTALL)
    return str(text)


def recipe(heading: str) -> Any:
    return yaml.safe_load(block(heading))


@pytest.fixture
def job(cli: Cli) -> Iterator[Cli]:
    """A job's folder with an installer that works until `go` is there, or until it is signalled."""
    installer = cli.cwd / "install.sh"
    installer.write_text(
        "#!/bin/bash\ntrap 'echo interrupted; exit 3' INT TERM\ntouch begun\n"
        "until [ -e go ]; do read -rt 0.02 _ </dev/zero; sleep 0.02; done\n"
    )
    installer.chmod(0o755)
    cli.env["PATH"] = f"{Path(sys.executable).parent}:{cli.env['PATH']}"
    cli.env["LEASECTL_BACKEND"] = "local:"
    for pool in ("gcp--install", "openshift-org-gcp--gcp--install-quota-slice"):
        cli.pool(pool)
    yield cli


def holder(job: Cli) -> str:
    """Wait until the installer works, and return the owner of the lease."""
    eventually(lambda: (job.cwd / "begun").exists(), "the installer has begun")
    (found,) = job.query("SELECT holder_identity FROM resource WHERE owner IS NOT NULL")
    return str(found[0])


def go(job: Cli) -> None:
    (job.cwd / "go").touch()


def shell(job: Cli, text: str, env: dict[str, str]) -> Started:
    return job.spawn(["bash", "-e", "-c", text], **env)


@pytest.mark.parametrize(
    ("text", "env", "owner"),
    [
        (recipe("GitHub Actions")["jobs"]["install"]["steps"][0]["run"], GITHUB, "o/r/ci/install"),
        (recipe("Buildkite")["steps"][0]["command"], BUILDKITE, "o/p"),
        (recipe("Prow")["ref"]["commands"], PROW, "e2e"),
    ],
    ids=["GitHub", "Buildkite", "Prow"],
)
def test_a_step_of_one_command_has_its_lease_while_it_works(
    job: Cli, text: str, env: dict[str, str], owner: str
) -> None:
    step = shell(job, text, env)
    assert owner.replace("/", "%2F") in holder(job)
    go(job)
    assert step.finish().code == 0
    assert job.held() == {}


def test_a_cancelled_github_job_interrupts_the_installer(job: Cli) -> None:
    """The runner signals the shell of the step alone."""
    step = shell(job, recipe("GitHub Actions")["jobs"]["install"]["steps"][0]["run"], GITHUB)
    holder(job)
    step.signal(signal.SIGINT)
    finished = step.finish()
    assert "interrupted" in finished.out
    assert job.held() == {}


def test_gitlab_releases_in_after_script_whatever_has_become_of_the_job(job: Cli) -> None:
    install = recipe("GitLab CI")["install"]
    directory = install["variables"]["LEASECTL_STATE_DIR"].replace("$CI_PROJECT_DIR", str(job.cwd))
    assert directory == str(job.cwd / ".leasectl/state")
    env = {**GITLAB, "LEASECTL_STATE_DIR": directory}
    job.cwd.chmod(0o777)  # as GitLab's Docker executor makes it
    assert shell(job, install["script"][0], env).finish().code == 0
    # Here the pool is in that directory too.
    job.ok("pool", "create", "gcp--install", "--count", "1", LEASECTL_STATE_DIR=directory)
    script = shell(job, "\n".join(install["script"]), env)
    eventually(lambda: (job.cwd / "begun").exists())
    assert "g/p/install/77" in job.ok("status", "--json", LEASECTL_STATE_DIR=directory)
    script.kill()
    after = shell(job, "\n".join(install["after_script"]), env).finish()
    assert (after.code, after.out) == (0, "gcp--install--00\n"), after


def test_jenkins_releases_after_its_steps(job: Cli) -> None:
    acquire, install, release = re.findall(r"sh '(.*)'", block("Jenkins"))
    assert shell(job, acquire, JENKINS).finish().code == 0
    step = shell(job, install, JENKINS)
    assert "folder%2Fjob/4" in holder(job)
    go(job)
    assert step.finish().code == 0
    assert shell(job, release, JENKINS).finish().code == 0
    assert job.held() == {}
