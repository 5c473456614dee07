"""What a process in a Kubernetes pod finds there to show the cluster's API."""

from __future__ import annotations

import ssl
from pathlib import Path

from rota.domain.errors import FieldError, InvalidInput

POD_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def find_file(given: str, name: str) -> str | None:
    """The file that was named, or the pod's own if there is one."""
    own = POD_FOLDER / name
    return given or (str(own) if own.is_file() else None)


def read_authorization(token_file: str) -> dict[str, str]:
    """The header with the token as it is now: the cluster replaces it from time to time."""
    file = find_file(token_file, "token")
    return {"Authorization": f"Bearer {Path(file).read_text(encoding='utf-8').strip()}"} if file else {}


def make_tls(ca_file: str) -> ssl.SSLContext:
    """Trust in the cluster's own authority. Raises InvalidInput where its file is no good."""
    authority = find_file(ca_file, "ca.crt")
    try:
        return ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        reason = f"{authority} cannot be read as certificates: {error}"
        raise InvalidInput.of([FieldError("kubernetes_ca_file", reason)]) from error
