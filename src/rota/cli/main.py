"""The command `rota`: which commands there are, and how their ends become exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence

import click

from rota import __version__
from rota.cli.lazy import Entry, LazyGroup
from rota.domain.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    RotaError,
    StaleVersion,
    Unauthenticated,
    Unavailable,
)

EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130
EXIT_CODES: Mapping[type[RotaError], int] = {
    InvalidInput: 2,
    NotFound: 3,
    Unavailable: 4,
    Conflict: 5,
    StaleVersion: 5,
    Unauthenticated: 6,
    Forbidden: 6,
}

COMMANDS = (
    Entry("up", "rota.cli.serve:up", "Start everything in one process: API, scheduler, a worker."),
    Entry("api", "rota.cli.serve:api", "Start an API node."),
    Entry("scheduler", "rota.cli.serve:scheduler", "Start a scheduler node."),
    Entry("node", "rota.cli.serve:node", "Start API and scheduler in one process."),
    Entry("worker", "rota.cli.worker:worker", "Start a worker for a server elsewhere, or list the workers."),
    Entry("workflow", "rota.cli.workflow:workflow", "List, show, trigger, pause and delete workflows; their versions."),
    Entry("schedule", "rota.cli.schedule:schedule", "List, pause, unpause and explain schedules."),
    Entry("runs", "rota.cli.runs:runs", "List, show, cancel, retry, compare and explain runs."),
    Entry("run-list", "rota.cli.runs:list_runs", "List runs (as `rota runs list`)."),
    Entry("logs", "rota.cli.runs:show_logs", "Print what the tasks of a run wrote."),
    Entry("job", "rota.cli.job:job", "Submit jobs and follow them."),
    Entry("approval", "rota.cli.approval:approval", "List what waits for a decision, and decide."),
    Entry("pool", "rota.cli.pool:pool", "List pools, and say how many slots they have."),
    Entry("queue", "rota.cli.queue:queue", "Pause queues, and limit how fast their task runs start."),
    Entry("apply", "rota.cli.definitions:apply", "Create or change workflows from files."),
    Entry("validate", "rota.cli.definitions:validate", "Check definition files, without a server."),
    Entry("cron", "rota.cli.cron:cron", "Show when a cron expression fires."),
    Entry("key", "rota.cli.key:key", "Create, list and revoke API keys."),
    Entry("cluster", "rota.cli.cluster:cluster", "Show the nodes of a cluster and who leads."),
    Entry("secret", "rota.cli.secret:secret", "Put, list, delete and re-encrypt secrets."),
    Entry("db", "rota.cli.database:database", "Upgrade, downgrade and check the database."),
    Entry("doctor", "rota.cli.doctor:doctor", "Check settings, database and server."),
    Entry("version", "rota.cli.doctor:version", "Print the version."),
)


@click.group(
    cls=LazyGroup,
    entries=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage or input, 3 not found, 4 server or database cannot be used, "
    "5 conflict, 6 not allowed, 130 interrupted.",
)
@click.version_option(__version__, prog_name="rota", message="%(prog)s %(version)s")
def cli() -> None:
    """Rota runs workflows and jobs on time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result = cli.main(given, prog_name="rota", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return EXIT_CODES[InvalidInput]
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough. What is still buffered must not raise again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except RotaError as error:
        _tell(error, is_json="--json" in given)
        return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), EXIT_FAILURE)
    return result if isinstance(result, int) else 0


def _tell(error: RotaError, *, is_json: bool) -> None:
    if is_json:
        faults = [{"field": fault.field, "reason": fault.reason} for fault in error.errors]
        click.echo(json.dumps({"code": error.code, "detail": error.detail, "errors": faults}), err=True)
    elif len(error.errors) > 1:
        click.echo(f"error: {len(error.errors)} faults", err=True)
        for fault in error.errors:
            click.echo(f"  {fault.field}: {fault.reason}", err=True)
    else:
        click.echo(f"error: {error.detail}", err=True)
