"""What all table definitions share: names of constraints, and the invariants that recur."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, MetaData

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def words(values: Iterable[StrEnum]) -> str:
    return ", ".join(f"'{value}'" for value in sorted(values))


def one_of(column: str, values: type[StrEnum]) -> CheckConstraint:
    """The column holds one of these words."""
    return CheckConstraint(f"{column} IN ({words(values)})", name=column)


def final_means_finished(final: Iterable[StrEnum]) -> CheckConstraint:
    """A final state has a time at which it was reached, and no other state has one."""
    return CheckConstraint(f"(status IN ({words(final)})) = (finished_at IS NOT NULL)", name="finished")


def cascade(target: str) -> ForeignKey:
    """The row goes when its owner goes."""
    return ForeignKey(target, ondelete="CASCADE")
