"""The command line. Commands are loaded when they are called: `pairtrial --help` imports none of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from pairtrial import __version__
from pairtrial.core.errors import ExitCode, PairtrialError

COMMANDS = {
    "init": ("pairtrial.cli.init", "init", "Write a plan and a provider to start from."),
    "check": ("pairtrial.cli.register", "check", "Read a plan and name every problem in it."),
    "power": ("pairtrial.cli.power", "power", "Say what a plan can show, before it is frozen."),
    "freeze": ("pairtrial.cli.register", "freeze", "Resolve every identity of a plan and write its lock."),
    "amend": ("pairtrial.cli.register", "amend", "Change a frozen plan in the open."),
    "diff": ("pairtrial.cli.register", "diff", "Say in what two locks differ."),
    "export": ("pairtrial.cli.export", "export", "Write a registration for people."),
    "purity": ("pairtrial.cli.purity", "purity", "Prove that nothing but the treatment differs on the wire."),
    "run": ("pairtrial.cli.run", "run", "Run a frozen plan, or go on with it."),
    "status": ("pairtrial.cli.run", "status", "Show how far a run is."),
    "score": ("pairtrial.cli.results", "score", "Compute the scorecard of a run, offline."),
    "report": ("pairtrial.cli.results", "report", "Write the report of a run and print its result."),
    "publish": ("pairtrial.cli.results", "publish", "Put a result into a README, or check that it is current."),
    "verify": ("pairtrial.cli.results", "verify", "Recompute a run from its receipts and name what was changed."),
    "tasks": ("pairtrial.cli.tasks", "tasks", "Look at task packs, measure and qualify them."),
    "schemas": ("pairtrial.cli.schemas", "schemas", "Write the JSON Schemas of all documents, for editors."),
    "doctor": ("pairtrial.cli.doctor", "doctor", "Say what this machine can do and what is missing."),
}


class LazyGroup(click.Group):
    """A group that knows the names and one line of help of its commands, and imports a command when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Commands in the order of the work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pairtrial")
def cli() -> None:
    """Run preregistered paired experiments on context layers for coding agents.

    \b
    Example:
      pairtrial check  prereg/demo.yaml
      pairtrial freeze prereg/demo.yaml
      pairtrial run    prereg/demo.yaml
      pairtrial report prereg/demo.yaml

    Exit codes: 0 done, 1 a check or gate said no, 2 usage, 3 inconclusive, 4 this machine, 130 interrupted.
    """


def first_error(error: BaseException) -> BaseException:
    """The first error inside nested groups, ours before others, for one clear message."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    inner = [first_error(item) for item in error.exceptions]
    return next((item for item in inner if isinstance(item, PairtrialError)), inner[0])


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    try:
        code = cli.main(args=list(arguments) if arguments is not None else None, standalone_mode=False)
    except click.ClickException as fault:
        fault.show()
        sys.exit(ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        interrupted()
    except BaseException as fault:
        error = first_error(fault)
        if isinstance(error, KeyboardInterrupt):
            interrupted()
        if not isinstance(error, PairtrialError):
            raise
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    sys.exit(code if isinstance(code, int) else ExitCode.OK)


def interrupted() -> None:
    """Ctrl-C: what is done is kept."""
    click.echo("interrupted: finished rollouts are kept, the same command goes on with the rest", err=True)
    sys.exit(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    main()
