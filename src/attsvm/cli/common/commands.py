"""How commands explain themselves and how they fail: help that flows, and one sentence instead of a traceback."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup


class _Flowing:
    """Help that flows and calls neither a flag `<bool>` nor an argument `<str>`; options name theirs by metavar."""

    help: str | None

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        if self.help is not None:  # no line breaks inside paragraphs: the terminal decides where lines end
            self.help = "\n\n".join(" ".join(part.split()) for part in self.help.split("\n\n"))

    def get_params(self, ctx: Any) -> Any:
        parameters = super().get_params(ctx)  # type: ignore[misc]
        for each in parameters:
            if isinstance(each, TyperArgument) or getattr(each, "is_flag", False):
                vars(each)["display_type_rich"] = lambda ctx: None
        return parameters


class Command(_Flowing, TyperCommand):
    """A command whose help flows."""


class Group(_Flowing, TyperGroup):
    """A group of commands whose help flows; run as a program, bad input ends in one sentence.

    What the user can put right is printed to stderr and ends with exit code 2, Ctrl-C with 130; anything else is a bug
    and shows its traceback.
    """

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
        except Exception as error:
            if _out_of_memory(error):
                what = str(error).partition("\n")[0] or type(error).__name__
                _leave(f"not enough memory ({what}); try smaller sizes, or fewer data sets at a time", 2)
            # Usage errors come from click, which newer versions of typer carry inside themselves.
            if not hasattr(error, "format_message"):
                raise
            _leave(f"{error.format_message()}", int(getattr(error, "exit_code", 2)) or 2)
        if code == 130:
            _leave("interrupted", 130)
        sys.exit(code if isinstance(code, int) else 0)


def refuse_options(context: typer.Context, unused: Collection[str], why: str) -> None:
    """A ValueError that says `why`, and names the options among those `unused` that were given."""
    given = {name for name in unused if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"}
    if named := [each.opts[0] for each in context.command.params if each.name in given]:
        raise ValueError(f"{why}; leave out {', '.join(named)}")


def interrupted(kept: str) -> NoReturn:
    """Leave after Ctrl-C; `kept` says what is not lost."""
    _leave(f"interrupted; {kept}", 130)


def _out_of_memory(error: Exception) -> bool:
    torch = sys.modules.get("torch")  # not loaded here: a command that did not need it cannot have run it full
    on_gpu = torch is not None and isinstance(error, torch.OutOfMemoryError)
    return on_gpu or isinstance(error, MemoryError) or "can't allocate memory" in str(error)  # as torch says on a CPU


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename} " if error.filename is not None else ""
        return f"{where}cannot be read or written: {error.strerror[:1].lower()}{error.strerror[1:]}"
    return str(error) or type(error).__name__


def _leave(sentence: str, code: int) -> NoReturn:
    typer.echo(f"attsvm: {' '.join(sentence.split())}", err=True)
    sys.exit(code)
