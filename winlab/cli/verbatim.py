"""Commands that pass words on: after their own ones everything belongs to another program, as with ssh."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from winlab.cli.app import NoResult


class Verbatim(NoResult):
    """Such a command."""

    own = 1  # how many words are its own; options may stand between them
    instead: Collection[str] = ()  # options that stand in the place of its own words

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read its options and own words; leave the rest to the other program."""
        options = [one for one in self.get_params(ctx) if one.param_type_name == "option"]
        valued = {name for one in options if not getattr(one, "is_flag", False) for name in one.opts}
        rest: list[str] = super().parse_args(ctx, separated(args, valued, self.own, self.instead))
        return rest


def separated(words: list[str], valued: Collection[str], own: int = 1, instead: Collection[str] = ()) -> list[str]:
    """The words of such a command with ``--`` before those that it passes on, unless it is there.

    :param valued: the options that take a value.
    :param own: how many words are its own.
    :param instead: options that stand in the place of its own words.
    """
    at, named = 0, 0
    while at < len(words) and words[at] != "--":
        word = words[at]
        if word.startswith("-"):
            if word.partition("=")[0] in instead:
                named = own
            at += 2 if word in valued else 1
        elif named == own:
            return [*words[:at], "--", *words[at:]]
        else:
            named, at = named + 1, at + 1
    return words
