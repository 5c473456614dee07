"""Answers of the busiest calls, written without pydantic. The shapes are those of `schemas`; tests compare them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.engine.jobs import CreatedJob

_encode = msgspec.json.Encoder().encode


def _view_created(job: CreatedJob) -> dict[str, Any]:
    return {"id": job.id, "job_id": job.id, "name": job.name, "status": "pending", "run_id": job.run_id}


def encode_created_one(job: CreatedJob) -> bytes:
    return _encode(_view_created(job))


def encode_created(jobs: Sequence[CreatedJob]) -> bytes:
    return _encode({"items": [_view_created(job) for job in jobs], "total": len(jobs)})
