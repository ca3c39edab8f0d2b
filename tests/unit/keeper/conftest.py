"""What tests of the keeper's parts work on; whole processes have a state directory of their own."""

from __future__ import annotations

from tests.kit.desk import desk as desk
