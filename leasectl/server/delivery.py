"""Whether what was written to a connection has arrived, as far as the kernel can know.

An answer that was written isn't delivered yet: the client may be gone without anybody having been
told. But the kernel knows what the other side's kernel has acknowledged, and whether it has reset
the connection.
"""

from __future__ import annotations

import enum
import fcntl
import socket
import struct
import termios
from typing import NamedTuple

_TCP_CLOSE = 7
# Where struct tcp_info, in linux/tcp.h, has tcpi_state and tcpi_bytes_acked.
_TCP_INFO_BYTES = 128
_STATE_AT = 0
_BYTES_ACKED_AT = 120


class Delivery(enum.Enum):
    """What became of an answer.

    UNSURE is said when it was acknowledged and the connection then reset: whoever was to read it
    has either ended with it unread or been rude about the end.
    """

    DELIVERED = "delivered"
    UNDELIVERED = "undelivered"
    UNSURE = "unsure"


class Wire(NamedTuple):
    """A TCP connection at one instant.

    Args:
        closed: Reset by either side, or ended by both.
        acknowledged: Bytes that the other side's kernel has confirmed, since the beginning.
        pending: Bytes that it hasn't yet.
    """

    closed: bool
    acknowledged: int
    pending: int


def look_at(connection: socket.socket) -> Wire:
    """Ask the kernel how a connection is; OSError when it is no longer open here."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    (acknowledged,) = struct.unpack_from("=Q", info, _BYTES_ACKED_AT)
    # SIOCOUTQ, see tcp(7), has the number of the terminals' TIOCOUTQ.
    (pending,) = struct.unpack("=i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))
    return Wire(info[_STATE_AT] == _TCP_CLOSE, acknowledged, pending)


def judge(before: Wire, now: Wire, *, buffered: int) -> Delivery | None:
    """Tell what became of an answer.

    Args:
        before: The connection right before the answer was written.
        now: The connection now.
        buffered: Bytes of the answer that the kernel hasn't even been given.

    Returns:
        None while it is still on its way; DELIVERED as soon as all of it was acknowledged.
    """
    if now.closed:
        arrived = now.acknowledged > before.acknowledged and not now.pending and not buffered
        return Delivery.UNSURE if arrived else Delivery.UNDELIVERED
    return None if now.pending or buffered else Delivery.DELIVERED
