"""A certificate for this machine, signed by itself."""

import shutil
import subprocess
from pathlib import Path

import pytest

from spanloop.foundation.keys.tls import TlsFiles


def make_certificate(folder: Path) -> TlsFiles:
    """Return a new certificate and its key; skip the test without openssl."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    files = TlsFiles(folder / "certificate.pem", folder / "key.pem")
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(files.private_key), "-out", str(files.certificate)),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    files.private_key.chmod(0o600)
    return files
