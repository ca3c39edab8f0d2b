"""Ask a running lease proxy for its state and tell it what to do, from Python and from Bash.

usage: control.py PORT_FILE state [KEY]      the state as JSON, or one of its values, a line each
       control.py PORT_FILE faults [RULE...] put these rules in force instead of all others
       control.py PORT_FILE refuse [SECONDS] close the listening socket; without a time: until told
       control.py PORT_FILE accept           listen again
       control.py PORT_FILE resume           let the requests that hang go on
       control.py PORT_FILE mark TEXT        write a line into the log
       control.py PORT_FILE occupy TYPE [COUNT]  let other jobs have free resources
       control.py PORT_FILE vacate [NAME...]     let them give back these, or all
       control.py PORT_FILE reap NAME...         let Boskos take back these leases
"""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

_TIMEOUT_SECONDS = 20


class Control:
    """The control port of a lease proxy.

    Args:
        port_file: What the proxy was started with.
    """

    def __init__(self, port_file: Path) -> None:
        url = Path(f"{port_file}.control").read_text(encoding="ascii").strip()
        self._address = urlsplit(url).netloc

    def state(self) -> dict[str, object]:
        """What is leased, who waits, and what has come in so far."""
        state = self._ask("state")
        assert isinstance(state, dict)
        return state

    def faults(self, *rules: object) -> None:
        """Put these rules in force instead of all others; each a line or a JSON object."""
        self._ask("faults", rules=list(rules))

    def refuse(self, seconds: float = 0.0) -> None:
        """Close the listening socket for a while; 0 seconds: until `accept`."""
        self._ask("refuse", seconds=seconds)

    def accept(self) -> None:
        """Listen again."""
        self._ask("accept")

    def resume(self) -> None:
        """Let the requests that hang go on."""
        self._ask("resume")

    def mark(self, text: str) -> None:
        """Write a line into the log."""
        self._ask("mark", text=text)

    def occupy(self, pool_type: str, count: int = 1) -> list[str]:
        """Let other jobs have that many resources; returns which, fewer if fewer are free."""
        return _names(self._ask("occupy", type=pool_type, count=count))

    def vacate(self, *names: str) -> list[str]:
        """Let other jobs give back these resources, or all that they have."""
        return _names(self._ask("vacate", names=list(names)))

    def reap(self, *names: str) -> list[str]:
        """Let Boskos take back these leases, which its holders aren't told of."""
        return _names(self._ask("reap", names=list(names)))

    def _ask(self, action: str, **given: object) -> object:
        connection = http.client.HTTPConnection(self._address, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request("POST", f"/_test/{action}", json.dumps(given))
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status != 200:
            raise ValueError(f"{action}: {text.strip()}")
        answer: object = json.loads(text)
        return answer


def _names(answer: object) -> list[str]:
    assert isinstance(answer, list)
    return [str(name) for name in answer]


def main(arguments: Sequence[str]) -> None:
    port_file, action, *rest = arguments
    control = Control(Path(port_file))
    if action == "state":
        _print_state(control.state(), rest)
    elif action == "faults":
        control.faults(*rest)
    elif action == "refuse":
        control.refuse(float(rest[0]) if rest else 0.0)
    elif action == "accept":
        control.accept()
    elif action == "resume":
        control.resume()
    elif action == "mark":
        control.mark(rest[0])
    elif action == "occupy":
        _print_lines(control.occupy(rest[0], int(rest[1]) if rest[1:] else 1))
    elif action == "vacate":
        _print_lines(control.vacate(*rest))
    elif action == "reap":
        _print_lines(control.reap(*rest))
    else:
        raise ValueError(f"no action {action!r}")


def _print_state(state: dict[str, object], keys: Sequence[str]) -> None:
    value = state[keys[0]] if keys else state
    _print_lines(value if isinstance(value, list) else [value])


def _print_lines(values: Sequence[object]) -> None:
    for value in values:
        print(value if isinstance(value, str) else json.dumps(value))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ValueError, KeyError, IndexError, OSError) as error:
        sys.exit(f"control: {error}")
