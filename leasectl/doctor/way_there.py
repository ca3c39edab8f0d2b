"""How a server is reached: over TLS or not, trusting whom, as whom."""

from __future__ import annotations

from leasectl.http.settings import Settings
from leasectl.http.tls import client_context


def tls_used(settings: Settings, *, is_secure: bool) -> list[str]:
    """What is to be said of TLS on the way to a server.

    Raises:
        LeaseError: The files that the settings name can't be used.
    """
    if not is_secure:
        return ["without TLS"]
    client_context(settings)
    return [
        f"trusting {settings.ca_file or 'the CAs of this system'}",
        f"showing {settings.cert_file or 'no certificate'}",
    ]
