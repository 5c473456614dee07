"""What the OpenAPI document says of the endpoints that are read without pydantic."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.api.answers import JSON
from rota.api.protocol import wire
from rota.api.schemas.workers import LogBody

_REFERENCES = "#/components/schemas/{name}"
(_EVENTS, _REPLY), COMPONENTS = msgspec.json.schema_components(
    (wire.Events, wire.EventsReply), ref_template=_REFERENCES
)
_EXAMPLE = {
    "events": [
        {
            "type": "log",
            "task_run_id": "01890a5d-ac96-774b-bcce-b302099a8057",
            "attempt": 1,
            "offset": 0,
            "text": "hello\n",
        },
        {
            "type": "finished",
            "task_run_id": "01890a5d-ac96-774b-bcce-b302099a8057",
            "attempt": 1,
            "status": "success",
            "exit_code": 0,
        },
    ],
    "claim": 1,
}
EVENTS_BODY: dict[str, Any] = {"required": True, "content": {JSON: {"schema": _EVENTS, "example": _EXAMPLE}}}
EVENTS_REPLY: dict[str, Any] = {
    "description": "One result for each event, in order, and new assignments.",
    "content": {JSON: {"schema": _REPLY}},
}
LOG_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        JSON: {"schema": LogBody.model_json_schema()},
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
    },
}
