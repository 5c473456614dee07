"""Many jobs are read as each of them would be alone."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from rota.domain.errors import InvalidInput
from rota.domain.job import parse_job
from rota.domain.job_bulk import MOST_FAULTS, parse_jobs

NOW = datetime(2030, 1, 1, tzinfo=UTC)
_WORDS = ["a", "b-1", "", " ", "x" * 201, "é", "a b", "echo {{ ds }}", "true | wc", "0" * 36, "1e3", None, 7, ["ls"]]
_UUID = "01890a5d-ac96-774b-bcce-b302099a8057"
JOBS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from([*_WORDS, _UUID]) | st.text(max_size=12),
        "command": st.sampled_from(_WORDS) | st.text(max_size=12),
        "max_retries": st.sampled_from([0, 1, True, -1, "1"]),
        "image": st.just("busybox"),
        "tags": st.sampled_from([["a"], [1], "a"]),
        "schedule": st.sampled_from(["", "* * * * *", "x"]),
        "webhook_url": st.just("https://example.com/"),
        "unknown": st.just(1),
    },
)


@given(st.lists(st.one_of(JOBS, st.none(), st.integers()), max_size=12))
def test_the_same_as_one_by_one(items):
    batch = parse_jobs(items, now=NOW)
    specs, errors = [], []
    for index, item in enumerate(items):
        try:
            specs.append(parse_job(item, now=NOW))
        except InvalidInput as error:
            errors += [(f"jobs[{index}].{fault.field}", fault.reason) for fault in error.errors]
            errors += [] if error.errors else [(f"jobs[{index}]", error.detail)]
    assert batch.specs == specs
    assert [(fault.field, fault.reason) for fault in batch.errors] == errors


def test_faults_are_counted():
    assert len(parse_jobs([{}] * 1000, now=NOW).errors) == MOST_FAULTS
