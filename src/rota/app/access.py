"""Who may call this process: what the settings say, and what must not be."""

from __future__ import annotations

import importlib
from typing import Any

from rota.api.options import AccessOptions, Issuer
from rota.app.http_server import TlsFiles
from rota.domain.access import EVERY_NAMESPACE, Role
from rota.domain.errors import FieldError, InvalidInput
from rota.settings import Settings, is_loopback
from rota.store import api_keys
from rota.store.database import Database

# Of one key and of one address, a second, where others than this machine can ask.
USUAL_RATE = 200


def access_options(settings: Settings) -> AccessOptions:
    is_open = is_loopback(settings.host)
    rate = settings.rate_limit if settings.rate_limit is not None else 0 if is_open else USUAL_RATE
    return AccessOptions(is_open=is_open, token=settings.token, rate_limit=rate, issuer=_make_issuer(settings))


def _make_issuer(settings: Settings) -> Issuer | None:
    """Whoever else vouches for callers; loaded only when asked for, since its library is an extra."""
    if not settings.oidc_issuer:
        return None
    unknown = sorted(set(settings.oidc_roles.values()) - set(Role))
    if unknown:
        raise InvalidInput.of([FieldError("oidc_roles", f"{unknown[0]} is no role; roles are {', '.join(Role)}")])
    if not settings.oidc_issuer.startswith(("https://", "http://")):
        raise InvalidInput.of([FieldError("oidc_issuer", "send an address that begins with https://")])
    try:
        oidc: Any = importlib.import_module("rota.api.oidc")
    except ModuleNotFoundError as error:
        reason = "needs a library that is not installed: pip install 'rota[oidc]'"
        raise InvalidInput.of([FieldError("oidc_issuer", reason)]) from error
    issuer: Issuer = oidc.Oidc(
        oidc.OidcOptions(
            issuer=settings.oidc_issuer,
            audience=settings.oidc_audience,
            name_claim=settings.oidc_name_claim,
            role_claim=settings.oidc_role_claim,
            roles=settings.oidc_roles,
            namespaces_claim=settings.oidc_namespaces_claim,
        )
    )
    return issuer


def find_tls_files(settings: Settings) -> TlsFiles | None:
    """The files for HTTPS, if that is wanted. Raises InvalidInput for one without the other."""
    if settings.tls_cert is None and settings.tls_key is None:
        return None
    if settings.tls_cert is None or settings.tls_key is None:
        raise InvalidInput.of([FieldError("tls_key", "HTTPS takes both files: tls_cert and tls_key")])
    return TlsFiles(settings.tls_cert, settings.tls_key)


async def check_exposure(settings: Settings, database: Database) -> None:
    """Refuses to let a whole network command this machine."""
    if is_loopback(settings.host) or settings.token or settings.oidc_issuer:
        return
    admins = await database.read(api_keys.read_admins)
    if any(admin.is_usable and EVERY_NAMESPACE in admin.namespaces for admin in admins):
        return
    reason = (
        f"{settings.host} can be reached from other machines, and whoever reaches it could run commands here. Make a "
        "key first: `rota key create NAME --role admin --local`, which takes the same --data-dir or --database-url; or "
        "set ROTA_TOKEN to a long random text (`openssl rand -hex 32` makes one), for workers and the command line, "
        "too; or listen on 127.0.0.1"
    )
    raise InvalidInput.of([FieldError("--host", reason)])
