"""What `socket` is made of: the same functions and numbers, without a class for each kind of them.

Those classes, and what else it loads, take half as long as Python to start.
"""

from leasectl.typed.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from socket import *  # noqa: F403
else:
    from _socket import *  # noqa: F403
