"""TLS by certificate files.

Invariant: files that do not fit, or that cannot be read, are refused before a service listens. A renewed certificate
needs a restart.
"""

import ssl
import stat
from pathlib import Path
from typing import NamedTuple

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings import Tls
from spanloop.foundation.settings.roles import ListeningSettings


class TlsFiles(NamedTuple):
    """A certificate and its private key, PEM."""

    certificate: Path
    private_key: Path


def tls_files(settings: ListeningSettings, configuration: Tls) -> TlsFiles | None:
    """Return the checked files of a role's settings, else those of ``[tls]``; None for plain HTTP.

    Raises:
        ConfigurationError: One of both is missing, cannot be read or does not fit the other.
    """
    certificate, private_key = settings.certificate_file, settings.private_key_file
    if certificate is None and private_key is None:
        certificate, private_key = configuration.certificate_file, configuration.private_key_file
    if certificate is None and private_key is None:
        return None
    if certificate is None or private_key is None:
        raise ConfigurationError(
            f"TLS needs a certificate and its private key: got {certificate} and {private_key}.",
            next_step="Give both --certificate-file and --private-key-file, or both keys of [tls].",
        )
    files = TlsFiles(certificate.expanduser().absolute(), private_key.expanduser().absolute())
    _check(files)
    return files


def _check(files: TlsFiles) -> None:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A key with a passphrase would be asked for on the terminal.
        context.load_cert_chain(files.certificate, files.private_key, password=b"")
        mode = files.private_key.stat().st_mode
    except (OSError, ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"The certificate {files.certificate} cannot be used with the private key {files.private_key}: {reason}.",
            next_step="Check that both are PEM, belong together, have no passphrase and can be read by this user.",
        ) from error
    if mode & stat.S_IROTH:
        raise ConfigurationError(
            f"Every user of this machine may read the private key {files.private_key}.",
            next_step=f"chmod 600 {files.private_key}",
        )
