"""HTTPS by two files."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import urllib.request

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def _make_files(folder):
    """A certificate for the loopback address, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rota")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = folder / "rota.crt", folder / "rota.key"
    files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


def test_https(start, rota, home):
    certificate, key = _make_files(home)
    server = start("--workers", "0", "--tls-cert", str(certificate), "--tls-key", str(key))
    assert server.url.startswith("https://127.0.0.1:")
    trusting = ssl.create_default_context(cafile=str(certificate))
    with urllib.request.urlopen(f"{server.url}/healthz", context=trusting, timeout=30) as response:
        assert response.status == 200
    assert rota("runs", "list", "--server", server.url, SSL_CERT_FILE=str(certificate)).returncode == 0
    assert rota("runs", "list", "--server", server.url).returncode == 4


def test_files_that_cannot_be_used(rota, home):
    certificate, key = _make_files(home)
    (home / "empty").write_text("")
    for given, words in (
        (("--tls-cert", str(certificate)), "takes both files"),
        (("--tls-cert", str(certificate), "--tls-key", str(home / "missing")), "cannot be used"),
        (("--tls-cert", str(home / "empty"), "--tls-key", str(key)), "cannot be used"),
    ):
        done = rota("up", "--port", "0", *given)
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr
