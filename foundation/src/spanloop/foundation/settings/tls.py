"""``[tls]``: the certificate with which collector, gateway and dashboard speak TLS."""

from typing import Self

from pydantic import model_validator

from .section import FilePath, Section


class Tls(Section):
    """``[tls]``: files in the PEM format. Without them the services speak plain HTTP."""

    certificate_file: FilePath | None = None
    """The certificate, followed by those of its issuers."""
    private_key_file: FilePath | None = None
    """Its private key, without a passphrase."""

    @model_validator(mode="after")
    def _has_both_files(self) -> Self:
        if (self.certificate_file is None) != (self.private_key_file is None):
            raise ValueError("set both certificate_file and private_key_file, or none of them")
        return self
