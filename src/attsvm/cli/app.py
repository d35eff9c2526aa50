"""The `attsvm` command: its commands, and one sentence instead of a traceback for bad input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import torch
import typer
from typer.core import TyperGroup

from attsvm import __version__
from attsvm.cli.demo import demo
from attsvm.cli.diagnose import diagnose
from attsvm.cli.figure import figure
from attsvm.cli.heads import heads
from attsvm.cli.play import play
from attsvm.cli.solve import solve
from attsvm.cli.train import train


class OneSentence(TyperGroup):
    """Runs a command; what the user can put right ends in one sentence on stderr and exit code 2, Ctrl-C in 130."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Run with `args`, by default those of the process; the context's `obj` is the list of them."""
        given = list(sys.argv[1:] if args is None else args)
        if not standalone_mode:
            return super().main(given, standalone_mode=False, **extra)
        try:
            code = super().main(given, standalone_mode=False, **{"obj": given, **extra})
        except (KeyboardInterrupt, typer.Abort):
            _leave("interrupted", 130)
        except (ValueError, OSError) as error:
            _leave(_sentence(error), 2)
        except (MemoryError, torch.OutOfMemoryError) as error:
            what = str(error).partition("\n")[0] or type(error).__name__
            _leave(f"not enough memory ({what}); try fewer data sets, or a larger --record in training", 2)
        except Exception as error:
            # Usage errors come from click, which newer versions of typer carry inside themselves.
            if not hasattr(error, "format_message"):
                raise
            _leave(f"{error.format_message()}", int(getattr(error, "exit_code", 2)) or 2)
        if code == 130:
            _leave("interrupted", 130)
        sys.exit(code if isinstance(code, int) else 0)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename} " if error.filename is not None else ""
        return f"{where}cannot be read or written: {error.strerror[:1].lower()}{error.strerror[1:]}"
    return str(error) or type(error).__name__


def _leave(sentence: str, code: int) -> NoReturn:
    plain = " ".join(sentence.split())
    typer.echo(f"attsvm: {plain}", err=True)
    sys.exit(code)


app = typer.Typer(
    name="attsvm",
    cls=OneSentence,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"attsvm {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def describe(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Softmax attention trained by gradient descent is a support vector machine that selects tokens.

    Start with `attsvm demo`; then train on your own data with `attsvm train DATA`.
    `attsvm solve DATA` finds the max-margin solution, with a proof, and `attsvm diagnose DATA` says beforehand what
    training will select.
    """
    if context.invoked_subcommand is None and not version:
        typer.echo(context.get_help())


app.command()(demo)
app.command()(train)
app.command()(solve)
app.command()(diagnose)
app.command()(heads)
app.add_typer(figure, name="figure")
app.command()(play)


def main() -> None:
    """Run the command line of this process."""
    app(prog_name="attsvm")
