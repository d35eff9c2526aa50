"""The `attsvm` command and the list of its commands. Nothing here loads PyTorch: help must be quick."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

import attsvm
from attsvm.cli.common.commands import Command, Group
from attsvm.cli.demo import demo
from attsvm.cli.diagnose import diagnose
from attsvm.cli.edit import edit
from attsvm.cli.figure import figure
from attsvm.cli.growth import growth
from attsvm.cli.heads import heads
from attsvm.cli.info import info
from attsvm.cli.next_token import next_token
from attsvm.cli.optimizer import optimizer
from attsvm.cli.play import play
from attsvm.cli.solve import solve
from attsvm.cli.sweep import sweep
from attsvm.cli.train import train
from attsvm.cli.why import why

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
app = typer.Typer(
    name="attsvm", cls=Group, add_completion=False, pretty_exceptions_enable=False, context_settings=_HELP
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"attsvm {attsvm.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def describe(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Softmax attention trained by gradient descent is a support vector machine that selects tokens.

    Start with `attsvm demo`; then train on your own data with `attsvm train DATA`.
    `attsvm solve DATA` finds the max-margin solution, with a proof, and `attsvm diagnose DATA` says beforehand what
    training will select.
    """
    if context.invoked_subcommand is None and not version:
        typer.echo(context.get_help())


for command in (demo, train, solve, diagnose, optimizer, growth, heads, why, edit, next_token, sweep, play, info):
    app.command(cls=Command)(command)
app.add_typer(figure, name="figure")


def main() -> None:
    """Run the command line of this process; what a scheduler's SIGTERM ends is told as after Ctrl-C."""
    signal.signal(signal.SIGTERM, _end)
    app(prog_name="attsvm")


def _end(*_: object) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a script Ctrl-C is ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)  # and not KeyboardInterrupt at once: it may be blocked while processes start
