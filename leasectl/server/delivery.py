"""Whether what was written to a connection has arrived, as far as the kernel can know.

An answer that was written isn't delivered yet: the client may be gone without anybody having been
told. But the kernel knows what the other side's kernel has acknowledged, and whether it has reset
the connection; a client that ends with an answer unread resets it.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios

from leasectl.typed.tuples import NamedTuple

_TCP_CLOSE = 7
# tcpi_state is the first byte of struct tcp_info, in linux/tcp.h.
_STATE_BYTES = 1


class TcpState(NamedTuple):
    """A TCP connection at one instant.

    Args:
        closed: Reset by either side, or ended by both.
        pending: Bytes that were sent and not yet acknowledged.
    """

    closed: bool
    pending: int


GONE = TcpState(closed=True, pending=0)


def look_at(connection: socket.socket) -> TcpState:
    """Ask the kernel how a connection is; OSError when it is no longer open here."""
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _STATE_BYTES)[0]
    # SIOCOUTQ, see tcp(7), has the number of the terminals' TIOCOUTQ.
    (pending,) = struct.unpack("=i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))
    return TcpState(state == _TCP_CLOSE, pending)


def has_arrived(tcp: TcpState, *, buffered: int) -> bool | None:
    """Tell whether all that was written has arrived at the other side's kernel.

    Args:
        tcp: The connection now.
        buffered: Bytes that our kernel hasn't even been given.

    Returns:
        None while it is still on its way.
    """
    if tcp.closed:
        return False
    return None if tcp.pending or buffered else True
