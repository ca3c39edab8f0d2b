"""What tests of the verbs work on."""

from __future__ import annotations

from tests.kit.desk import desk as desk
from tests.kit.made_up_server import server as server
