"""The certificate files of TLS: both or none, and such that fit."""

from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.keys.exposure import reachable_url
from spanloop.foundation.keys.tls import TlsFiles, tls_files
from spanloop.foundation.settings import Tls
from spanloop.foundation.settings.roles import DashboardSettings
from spanloop.foundation.settings.sources import read_process

from .certificates import make_certificate


def options(*arguments: str) -> DashboardSettings:
    return read_process(DashboardSettings, arguments).settings


def test_options_win_over_the_file_and_nothing_is_plain_http(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = make_certificate(tmp_path / "a"), make_certificate(tmp_path / "b")
    flags = ["--certificate-file", str(first.certificate), "--private-key-file", str(first.private_key)]
    configured = Tls(certificate_file=second.certificate, private_key_file=second.private_key)
    assert tls_files(options(*flags), configured) == first
    assert tls_files(options(), configured) == second
    assert tls_files(options(), Tls()) is None
    assert reachable_url("0.0.0.0", 1, is_tls=True) == "https://127.0.0.1:1"
    mixed = TlsFiles(first.certificate, second.private_key)
    with pytest.raises(ConfigurationError, match="cannot be used with the private key"):
        tls_files(options(), Tls(certificate_file=mixed.certificate, private_key_file=mixed.private_key))
    with pytest.raises(ConfigurationError, match="needs a certificate and its private key"):
        tls_files(options(*flags[:2]), Tls())
    first.private_key.chmod(0o644)
    with pytest.raises(ConfigurationError, match="Every user of this machine may read") as public:
        tls_files(options(*flags), Tls())
    assert public.value.next_step == f"chmod 600 {first.private_key}"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.pem cannot be used.*No such file"):
        tls_files(options(), Tls(certificate_file=tmp_path / "none.pem", private_key_file=tmp_path / "key.pem"))
