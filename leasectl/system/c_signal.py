"""What `signal` is made of: the same functions and numbers, without a class for each kind of them.

Those classes take a tenth of Python's start.
"""

from leasectl.typed.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from signal import *  # noqa: F403
else:
    from _signal import *  # noqa: F403
