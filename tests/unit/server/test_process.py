"""The server as a process: where it listens, how it ends, what it tells."""

from __future__ import annotations

import re
import signal
import socket
import sys
from pathlib import Path

import pytest

import leasectl
from leasectl.pools.overview import Overview
from tests.kit.serving import Serve, Serving, first_line, held, states, waiting
from tests.kit.support import Cli
from tests.kit.waits import eventually


class TestTheEnd:
    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
    def test_waiters_are_told_and_leases_stay(
        self, cli: Cli, serve: Serve, signum: signal.Signals
    ) -> None:
        cli.pool("T", "only")
        server = serve()
        with server.connect() as holder:
            assert holder.acquire("T").names == ["only"]
            waiter = server.waiter("T")
            eventually(lambda: waiting(cli, "T") == 1)
            finished = server.end(signum)
            assert (finished.code, finished.out, finished.err) == (0, "", "")
            got = waiter.read_answer()
            waiter.close()
            assert got.status == 500
            assert "context canceled: the server is shutting down" in got.text
        eventually(lambda: waiting(cli, "T") == 0)
        assert states(cli, "T") == ["held"]
        with serve().connect() as client:
            assert client.release("only").status == 204
        assert held(cli, "T") == []

    def test_with_its_guard_it_ends_and_all_leases_go_back(self, cli: Cli, serve: Serve) -> None:
        cli.pool("T", "a", "b")
        job = cli.spawn(["sleep", "600"])
        server = serve("--guard-pid", str(job.pid))
        with server.connect() as first, server.connect() as second:
            assert first.acquire("T").names == ["a"]
            assert second.acquire("T").names == ["b"]
        assert held(cli, "T") == ["a", "b"]
        job.kill()
        assert server.wait().code == 0
        eventually(lambda: held(cli, "T") == [], what="the keeper has released both")

    def test_with_its_guard_leases_go_back_also_of_a_server_that_was_killed(
        self, cli: Cli, serve: Serve
    ) -> None:
        cli.pool("T", "only")
        job = cli.spawn(["sleep", "600"])
        server = serve("--guard-pid", str(job.pid))
        with server.connect() as client:
            assert client.acquire("T").names == ["only"]
        server.kill()
        assert held(cli, "T") == ["only"]
        job.kill()
        eventually(lambda: held(cli, "T") == [], what="the keeper has released it")


class TestListening:
    def test_the_outputs_reader_sees_its_end(self, cli: Cli) -> None:
        server = cli.start("serve", "-q")
        first_line(server)
        assert server.process.stdout is not None
        assert server.process.stdout.read() == ""
        assert server.process.poll() is None

    def test_a_port_in_use_is_one_line(self, cli: Cli) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            finished = cli("serve", "--listen", address)
        assert (finished.code, finished.out) == (69, "")
        assert f"can't listen on {address}: Address already in use" in finished.err
        assert finished.err.count("\n") == 1

    @pytest.mark.parametrize("address", ["192.0.2.1:0", "no.such.host.invalid:0"])
    def test_an_address_that_is_not_ours_is_one_line(self, cli: Cli, address: str) -> None:
        finished = cli("serve", "--listen", address)
        assert (finished.code, finished.err.count("\n")) == (69, 1)

    @pytest.mark.parametrize(
        "address",
        ["", "8080", ":8080", "127.0.0.1", "127.0.0.1:http", "h:65536", "::1:80", "a b:c"],
    )
    def test_what_is_no_address_is_one_line(self, cli: Cli, address: str) -> None:
        finished = cli("serve", "--listen", address)
        assert (finished.code, finished.err.count("\n")) == (64, 1)
        assert "write it like 127.0.0.1:8080" in finished.err

    def test_whoever_lets_strangers_in_is_warned(self, cli: Cli) -> None:
        server = cli.start("serve", "-q", "--listen", "0.0.0.0:0")
        assert Serving.at(first_line(server)).get("/healthz") == "ok\n"
        server.signal(signal.SIGTERM)
        finished = server.finish()
        assert "anyone who can reach 0.0.0.0 can acquire and release leases" in finished.err
        assert finished.err.count("\n") == 1

    @pytest.mark.parametrize(("mode", "mentioned"), [(0o600, False), (0o604, True)])
    def test_a_token_file_that_others_can_read_is_mentioned(
        self, cli: Cli, tmp_path: Path, mode: int, mentioned: bool
    ) -> None:
        (tmp_path / "token").write_text("s3cret")
        (tmp_path / "token").chmod(mode)
        server = cli.start("serve", "-q", "--token-file", str(tmp_path / "token"))
        first_line(server)
        server.signal(signal.SIGTERM)
        said = f"other users can read the token file {tmp_path / 'token'}; run: chmod 600 "
        assert (said in server.finish().err) == mentioned


class TestBadInput:
    @pytest.mark.parametrize("backend", ["http://127.0.0.1:9", "none:"])
    def test_backends_without_pools_cannot_be_served(self, cli: Cli, backend: str) -> None:
        finished = cli("serve", "--backend", backend)
        assert (finished.code, finished.err.count("\n")) == (64, 1)
        assert f"leases of {backend}; choose local:" in finished.err

    def test_without_the_extra_it_says_what_to_install(self, cli: Cli) -> None:
        script = (
            "import sys\nsys.modules['uvicorn'] = None\nfrom leasectl.cli.app import main\nmain()\n"
        )
        finished = cli.spawn([sys.executable, "-c", script, "serve"]).finish()
        assert finished.code == 64
        assert "needs uvicorn" in finished.err
        assert "pip install '.[serve]'" in finished.err
        assert finished.err.count("\n") == 1

    def test_a_state_directory_that_cannot_be_used_is_73(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        finished = cli("serve", LEASECTL_STATE_DIR=str(tmp_path / "file"))
        assert (finished.code, finished.err.count("\n")) == (73, 1)

    def test_a_token_file_without_a_token_is_one_line(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "empty").write_text("\n")
        for name, code in (("empty", 65), ("missing", 64)):
            finished = cli("serve", "--token-file", str(tmp_path / name))
            assert (finished.code, finished.err.count("\n")) == (code, 1)
            assert f"token file {tmp_path / name}" in finished.err
            assert "--token-file must name" in finished.err
            assert "Errno" not in finished.err


class TestToken:
    def test_only_who_shows_it_gets_leases(self, cli: Cli, serve: Serve, tmp_path: Path) -> None:
        cli.pool("T")
        file = tmp_path / "token"
        file.write_text("secret\n")
        server = serve("--token-file", str(file))
        with server.connect() as client:
            for header in ({}, {"Authorization": "Bearer Secret"}, {"Authorization": "secret"}):
                got = client.acquire("T", 1, **header)
                assert (got.status, got.headers["www-authenticate"]) == (401, "Bearer")
                assert client.release("T--00", **header).status == 401
                assert client.ask("GET", "/metrics", **header).status == 401
            assert client.ask("GET", "/healthz").status == 200
            assert client.acquire("T", Authorization="Bearer secret").names == ["T--00"]
        backend = ("--backend", server.url)
        refused = cli("acquire", "-t", "T", *backend)
        assert (refused.code, refused.err.count("\n")) == (77, 1)
        assert "LEASECTL_TOKEN_FILE" in refused.err
        assert cli("acquire", "-t", "T", *backend, LEASECTL_TOKEN_FILE=str(file)).code == 0
        assert held(cli, "T") == ["T--00", "T--01"]


class TestMetrics:
    def test_they_are_what_status_says(self, cli: Cli, serve: Serve) -> None:
        cli.pool("T", "a", "b", "c")
        cli.pool("U")
        cli.ok("pool", "set", "T", "--pace", "0.5", "--burst", "9")
        cli.ok("pool", "cordon", "--names", "U--00")
        server = serve()
        cli.hold("T")
        with server.connect() as client, server.connect() as waiter:
            client.acquire("T")
            waiter.start_acquire("T", 2)
            eventually(lambda: waiting(cli, "T") == 1)
            lines = server.get("/metrics").splitlines()
        assert {
            'leasectl_resources_held{type="T"} 2',
            'leasectl_resources_free{type="T"} 1',
            'leasectl_requests_waiting{type="T"} 1',
            'leasectl_requests_waiting_by_priority{type="T",priority="0"} 1',
            'leasectl_pace_seconds{type="T"} 0.5',
            'leasectl_burst{type="T"} 9',
            'leasectl_aging_seconds{type="U"} 0.0',
            'leasectl_next_grant_seconds{type="U"} 0.0',
            # Of the command as well as of the server's client.
            'leasectl_grants_total{type="T"} 2',
            'leasectl_wait_seconds_bucket{type="T",le="+Inf"} 2',
            'leasectl_wait_seconds_count{type="T"} 2',
            'leasectl_leases_lost_total{type="T"} 0',
            'leasectl_oldest_wait_seconds{type="U"} 0.0',
            'leasectl_resources_free{type="U"} 1',
            'leasectl_resources_unavailable{type="U"} 1',
        } <= set(lines)
        assert "# TYPE leasectl_wait_seconds histogram" in lines
        of_ages = re.compile(r'leasectl_(oldest_\w+)_seconds\{type="T"\} (\S+)')
        assert {each[0] for each in of_ages.findall("\n".join(lines))} == {
            "oldest_lease",
            "oldest_wait",
        }
        (built,) = [line for line in lines if line.startswith("leasectl_build_info{")]
        assert f'version="{leasectl.__version__}"' in built
        lines.remove(built)
        sample = re.compile(r'[a-z_]+\{type="[^"]+"(,(le|priority)="[^"]+")?\} [0-9.]+')
        assert all(line.startswith("# ") or sample.fullmatch(line) for line in lines)

    def test_buckets_add_up(self) -> None:
        from leasectl.server.metrics import Meter

        meter = Meter()
        for seconds in (0.001, 0.05, 0.05, 100.0, 1e9):
            meter.granted("T", seconds)
        text = meter.text(Overview("local:", 0.0, ()))
        counts = [int(n) for n in re.findall(r"_bucket\{.*\} (\d+)", text)]
        assert counts == [1, 3, 3, 3, 3, 4, 4, 4, 4, 4, 5]
        assert 'leasectl_wait_seconds_count{type="T"} 5' in text
