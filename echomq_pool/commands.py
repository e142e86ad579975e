# SPDX-License-Identifier: MIT
"""The subcommands of `echomq-pool`: check a configuration, ask a running pool, tell it what to do.

The words and exit codes here may be leaned on; the functions may change.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from echomq_pool import __version__
from echomq_pool.errors import ConfigError, PoolError
from echomq_pool.launch import CONFIG_VARIABLE, EXIT_USAGE, NO_CONFIG, find_control, health, refuse, run
from echomq_pool.supervisor.control import call

EXIT_REFUSED = 1
ANSWER_TIMEOUT_S = 15.0
F = TypeVar("F", bound=Callable[..., Any])


def dispatch(words: Sequence[str]) -> int:
    """Runs one command line; its exit code. Errors are sentences on stderr, never tracebacks."""
    try:
        code = cli.main(args=list(words), prog_name="echomq-pool", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        if isinstance(error, click.NoSuchOption) and not error.possibilities:
            click.echo(_key_hint(error.option_name), err=True, nl=False)
        return EXIT_USAGE
    except click.exceptions.Abort:
        return 130
    except ConfigError as error:
        return refuse(error.problems)
    except PoolError as error:
        click.echo(str(error), err=True)
        return EXIT_REFUSED
    return code if isinstance(code, int) else 0


def _key_hint(option: str) -> str:
    """For an option that does not exist: the key of the configuration it was meant to be."""
    from echomq_pool.config.models import Defaults

    near = difflib.get_close_matches(option.strip("-").replace("-", "_"), Defaults.model_fields, n=1)
    return f"Did you mean the key '{near[0]}' of the configuration?\n" if near else ""


class SuggestingGroup(click.Group):
    """A group that knows what a mistyped command was meant to be."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


def config_option(function: F) -> F:
    """--config, also from the environment."""
    decorate = click.option(
        "--config",
        "-c",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar=CONFIG_VARIABLE,
        help=f"The configuration file (default: ${CONFIG_VARIABLE}).",
    )
    return decorate(function)


def socket_options(function: F) -> F:
    """Whom to ask: the pool of a configuration, or the one behind a control socket."""
    decorate = click.option("--control", type=click.Path(), help="The control socket, instead of --config.")
    return config_option(decorate(function))


@click.group(
    cls=SuggestingGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@config_option
@click.version_option(__version__, prog_name="echomq-pool")
@click.pass_context
def cli(ctx: click.Context, config: Path | None) -> int | None:
    """Runs a supervised pool of processes for BullMQ-compatible queues.

    \b
    echomq-pool --config pool.toml           run until TERM
    echomq-pool check --config pool.toml     print what the pool would do, and what is wrong with it

    Exit codes: 0 drained, 13 boot failed, 64 usage, 70 gave up, 75 work was killed at the stop
    deadline (and given back), 78 configuration.
    """
    ctx.obj = config
    if ctx.invoked_subcommand is not None:
        return None
    if config is None:
        raise click.UsageError(NO_CONFIG, ctx)
    return run(config)


@cli.command()
@config_option
@click.pass_obj
def check(outer: Path | None, config: Path | None) -> int:
    """Print the effective configuration, secrets hidden; exit 78 with every problem if it has any."""
    from echomq_pool.config.load import load  # the validator, which only this command needs
    from echomq_pool.config.show import show

    path = config or outer
    if path is None:
        raise click.UsageError(NO_CONFIG)
    click.echo(show(load(path, os.environ)), nl=False)
    return 0


@cli.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="The folder to write to; made when it is missing.",
)
def scripts(out: Path) -> int:
    """Write every Lua script of the lock plane to a folder, expanded, as <name>-<number of keys>.lua."""
    from echomq_pool.redisio.export import export_scripts  # which only this command needs

    click.echo(f"{len(export_scripts(out))} scripts in {out}")
    return 0


@cli.command()
@socket_options
@click.option("--json", "as_json", is_flag=True, help="The answer as it came.")
@click.pass_obj
def status(outer: Path | None, config: Path | None, control: str | None, as_json: bool) -> int:
    """Show the tree: every process with pid, state, restarts and jobs."""
    answer = _ask(control, config or outer, "status")
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    else:
        from echomq_pool.status_view import render

        render(answer, sys.stdout)
    return 0


@cli.command("health")
@click.option("--ready", is_flag=True, help="Also ask whether it can work now: linked, not quiet.")
@socket_options
@click.pass_obj
def health_command(outer: Path | None, config: Path | None, control: str | None, ready: bool) -> int:
    """Exit 0 when every group has a worker, 1 with the reason when not. Cheap: for HEALTHCHECK and probes."""
    path = config or outer
    words = ["--control", control] if control else ["--config", str(path)] if path else []
    return health([*words, *(["--ready"] if ready else [])])


@cli.command()
@socket_options
@click.pass_obj
def quiet(outer: Path | None, config: Path | None, control: str | None) -> int:
    """Take no new jobs; what runs goes on."""
    return _tell(control, config or outer, "quiet")


@cli.command()
@socket_options
@click.pass_obj
def resume(outer: Path | None, config: Path | None, control: str | None) -> int:
    """Take jobs again after `quiet`."""
    return _tell(control, config or outer, "resume")


@cli.command()
@click.argument("group")
@click.argument("processes", metavar="N", type=click.IntRange(min=0, max=1024))
@socket_options
@click.pass_obj
def scale(outer: Path | None, config: Path | None, control: str | None, group: str, processes: int) -> int:
    """Run N worker processes in GROUP, until the configuration is read again."""
    return _tell(control, config or outer, "scale", group=group, n=processes)


@cli.command()
@click.argument("child")
@socket_options
@click.pass_obj
def restart(outer: Path | None, config: Path | None, control: str | None, child: str) -> int:
    """Replace CHILD (an id of `status`): gracefully, and without costing its group's budget."""
    return _tell(control, config or outer, "restart", child=child)


@cli.command()
@click.option("--fast", is_flag=True, help="Hand back at once what runs, instead of letting it finish.")
@socket_options
@click.pass_obj
def stop(outer: Path | None, config: Path | None, control: str | None, fast: bool) -> int:
    """Drain and end the pool, as TERM does."""
    return _tell(control, config or outer, "stop", **({"fast": True} if fast else {}))


@cli.command()
@socket_options
@click.pass_obj
def reload(outer: Path | None, config: Path | None, control: str | None) -> int:
    """Read configuration and code anew, as HUP does; what does not boot leaves the old processes running."""
    return _tell(control, config or outer, "reload")


@cli.command()
@click.argument("queue")
@click.argument("job_id")
@click.option("--reason", default="cancelled", show_default=True, help="What the job fails with.")
@socket_options
@click.pass_obj
def cancel(
    outer: Path | None, config: Path | None, control: str | None, queue: str, job_id: str, reason: str
) -> int:
    """Stop the running job JOB_ID of QUEUE; it fails and is not tried again.

    A job that does not run in this pool is left alone.
    """
    return _tell(control, config or outer, "cancel", queue=queue, id=job_id, reason=reason)


def _ask(control: str | None, config: Path | None, verb: str, **args: Any) -> Any:
    """The pool's answer.

    Raises:
        PoolError: there is no such pool, or it refuses.
    """
    row = call(control or find_control(config), verb, args, timeout_s=ANSWER_TIMEOUT_S)
    if not row.get("ok"):
        error = str(row.get("error") or "refused")
        raise PoolError(f"{verb}: {error}: {row['detail']}" if row.get("detail") else f"{verb}: {error}")
    return row.get("value")


def _tell(control: str | None, config: Path | None, verb: str, **args: Any) -> int:
    answer = _ask(control, config, verb, **args)
    click.echo(
        "ok" if answer in (None, True, "") else answer if isinstance(answer, str) else json.dumps(answer)
    )
    return 0
