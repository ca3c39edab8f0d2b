"""What `ssl` is made of: contexts, errors, and connections of a client.

`ssl` itself makes classes of all of OpenSSL's numbers, and with `socket`, which it loads, takes
nearly as long as Python to start. What it adds to a connection that matters to a client is here.
"""

from __future__ import annotations

from leasectl.http import c_socket as socket
from leasectl.typed.hints import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ssl import (
        CERT_NONE,
        PROTOCOL_TLS_CLIENT,
        SSL_ERROR_EOF,
        SSLCertVerificationError,
        SSLContext,
        SSLEOFError,
        SSLError,
    )
else:
    from _ssl import (
        CERT_NONE,
        PROTOCOL_TLS_CLIENT,
        SSL_ERROR_EOF,
        SSLCertVerificationError,
        SSLEOFError,
        SSLError,
    )
    from _ssl import _SSLContext as SSLContext

__all__ = [
    "CERT_NONE",
    "PROTOCOL_TLS_CLIENT",
    "SSLCertVerificationError",
    "SSLContext",
    "SSLEOFError",
    "SSLError",
    "SecureSocket",
]

_ALPN = b"\x08http/1.1"  # each protocol after its length


class SecureSocket:
    """The TLS of a connection, of which nothing has been said yet; one thread uses it.

    How long anything may take is the connection's affair.

    Args:
        context: Whom to trust, and what to show; one of `ssl` will do.
        connected: The connection, which has to stay as long as this does.
        server_name: Whose certificate it has to be, in ASCII.
    """

    def __init__(self, context: SSLContext, connected: socket.socket, server_name: str) -> None:
        made = cast(Any, context)
        made._set_alpn_protocols(_ALPN)
        self._tls = made._wrap_socket(connected, False, server_name)

    def do_handshake(self) -> None:
        """Agree on how to go on; OSError if that can't be."""
        self._tls.do_handshake()

    def sendall(self, data: bytes) -> None:
        """Send all of it; OSError if that can't be."""
        left = memoryview(data)
        while left:
            left = left[self._tls.write(left) :]

    def recv(self, most: int) -> bytes:
        """What comes next, at most so many bytes; none at the end, said goodbye or not."""
        try:
            return cast(bytes, self._tls.read(most))
        except SSLError as error:
            if error.args[0] == SSL_ERROR_EOF:
                return b""
            raise
