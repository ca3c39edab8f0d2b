"""What tests of the parts of `run` work on; whole processes have a state directory of their own."""

from __future__ import annotations

from tests.kit.desk import desk as desk
