#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Writes what settings.def says into the documents: the table of
docs/reference/settings.md, and the options and variables of emuvctl(1). Each
part stands between a line with `settings.def: NAME` and one with
`settings.def: end`."""

import argparse
import dataclasses
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PAGE = "docs/reference/settings.md"
MANUAL = "docs/man/emuvctl.1"

TOKEN = re.compile(r'\s+|//[^\n]*|#[^\n]*|(?P<text>"(?:[^"\\]|\\.)*")|(?P<word>\w+)|(?P<sign>[(),])')
LIMITS = ("INSTANCES", "SIZE", "TIERS", "LEDGER")
WITH_DEFAULT = ("SWITCH", "TIERS")  # VARIABLE_DEFAULT holds where they are not set


@dataclasses.dataclass
class Value:
    name: str
    word: str
    help: str
    text: str


@dataclasses.dataclass
class Setting:
    kind: str
    member: str
    variable: str
    option: str
    type: str
    needs: str
    help: str
    values: list
    text: str


def tokens_of(source):
    at = 0
    while at < len(source):
        found = TOKEN.match(source, at)
        if not found:
            sys.exit(f"settings.def: not understood: {source[at:at + 40]!r}")
        at = found.end()
        if found.lastgroup:
            yield found.lastgroup, found.group()


def call(tokens):
    """The arguments of a call whose name has been read: a text each, or the
    list of the calls that stand there."""
    arguments, texts, calls = [], [], []
    assert next(tokens)[1] == "("
    for kind, text in tokens:
        if kind == "text":
            texts.append(text[1:-1].replace('\\"', '"'))
        elif kind == "word" and text == "EMUV_VALUE":
            calls.append(Value(*call(tokens)))
        elif kind == "word":
            texts.append(text)
        else:  # the end of an argument
            arguments.append(calls if calls else "".join(texts))
            texts, calls = [], []
            if text == ")":
                return arguments
    return sys.exit("settings.def: a call has no end")


def read_settings():
    tokens = tokens_of((HERE / "settings.def").read_text())
    settings = []
    for _, name in tokens:
        assert name == "EMUV_SETTING", name
        settings.append(Setting(*call(tokens)))
        settings[-1].values = settings[-1].values or []
    return settings


def sentences(text):
    # Not at "1.5 GiB": the end of a sentence has a capital behind it.
    return re.split(r"(?<=[.:]) +(?=[A-Z`\[])", text) if text else []


# The page.

VALUES = {
    "INSTANCES": "`0`, or `0,1` by device",
    "SIZE": "a size: `12G`, `512M`, `1.5 GiB`, or bytes",
    "TIERS": "`peer:N=SIZE`, `packed=SIZE`, `ram=SIZE`, `file:FOLDER=SIZE`, several between commas, or `none`",
    "LEDGER": "a path",
    "OUTPUT": "a path",
    "LIBRARY": "a path",
    "FLAG": "`1`",
    "CHOICE": "one of these",
    "SWITCH": "one of these",
    "NAMES": "one of these words, or names between commas",
}


def page_table(settings):
    yield "| setting | `emuvctl run` | values | meaning |"
    yield "| --- | --- | --- | --- |"
    for each in settings:
        yield f"| `{each.variable}` | `{each.option}` | {VALUES[each.kind]} | {each.text} |"
        for value in each.values:
            word = f"`{value.word}`"
            if value is each.values[0]:
                word += " (default)"
            elif each.kind == "SWITCH" and value is each.values[1]:
                word += f" (`{each.option}`)"
            elif each.kind == "SWITCH":
                word += f" (`{each.option}={value.word}`)"
            yield f"| | | {word} | {value.text} |"


# The manual, in mdoc(7).

def mdoc_macro(word, settings):
    """The macro for a word in code, and the word as the macro takes it."""
    for each in settings:
        if word == each.variable:
            return "Fl", each.option[1:]
        if word in [value.word for value in each.values]:
            return "Cm", word
    if word.startswith("emuvctl "):
        return "Cm", word.removeprefix("emuvctl ")
    if re.fullmatch(r"cu[A-Z]\w+", word):
        return "Fn", word
    return "Ql", word


def mdoc_text(text, settings):
    """A line for each sentence, and one for each word in code."""
    for sentence in sentences(text):
        if "](" in sentence:
            continue
        parts = re.split(r"`([^`]*)`([.,:;)]*)", sentence)
        for index in range(0, len(parts), 3):
            plain = parts[index].strip()
            # A bracket before a word belongs to the word's line.
            opening = plain.endswith("(")
            plain = plain.removesuffix("(").strip()
            if plain:
                yield from mdoc_plain(plain)
            if index + 1 < len(parts):
                macro, word = mdoc_macro(parts[index + 1], settings)
                signs = list(parts[index + 2])
                before = ["("] if opening else []
                yield " ".join([f".{macro}", *before, word, *signs])


def mdoc_plain(text):
    # A sign that would begin a macro begins a text.
    line = "\\&" if text[0] in ".'" else ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > 79:
            yield line
            line = word
        else:
            line += (" " if line not in ("", "\\&") else "") + word
    yield line


def manual_options(settings):
    for each in settings:
        head = f".It Fl {each.option[1:]}"
        if each.kind == "SWITCH":
            words = " | ".join(value.word for value in each.values[2:])
            head += f" Ns Op = Ns Cm {words}"
        elif each.type:
            head += f" Ar {each.type}"
        yield head
        yield from mdoc_text(each.text, settings)
        # A switch is off without the option.
        values = each.values[1:] if each.kind == "SWITCH" else each.values
        if not values:
            continue
        yield ".Bl -tag -width Ds"
        for value in values:
            if each.kind == "SWITCH" and value is values[0]:
                yield f".It Fl {each.option[1:]}"
            elif each.kind == "SWITCH":
                yield f".It Fl {each.option[1:]} Ns = Ns Cm {value.word}"
            else:
                yield f".It Cm {value.word}" + (" No (default)" if value is values[0] else "")
            yield from mdoc_text(value.text, settings)
        yield ".El"


def manual_variables(settings, limits):
    names = [name for each in settings if (each.kind in LIMITS) == limits
             for name in ([each.variable, each.variable + "_DEFAULT"]
                          if each.kind in WITH_DEFAULT else [each.variable])]
    lines = [" , ".join(names[at:at + 5]) for at in range(0, len(names), 5)]
    return [".It Ev " + " , \\\n".join(lines)]


def part(text, name, lines):
    """The text with what stands between the two marks made anew."""
    pattern = re.compile(
        rf"(^[^\n]*settings\.def: {name}\b[^\n]*\n).*?(^[^\n]*settings\.def: end\b)",
        re.MULTILINE | re.DOTALL)
    if len(pattern.findall(text)) != 1:
        sys.exit(f"the mark 'settings.def: {name}' must stand once")
    body = "".join(line + "\n" for line in lines)
    return pattern.sub(lambda found: found[1] + body + found[2], text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true",
                        help="write nothing: print each document that is not as settings.def says")
    check = parser.parse_args().check
    settings = read_settings()
    parts = {
        PAGE: {"table": page_table(settings)},
        MANUAL: {"options": manual_options(settings),
                 "variables": manual_variables(settings, limits=False),
                 "limits": manual_variables(settings, limits=True)},
    }
    for name, made in parts.items():
        file = ROOT / name
        before = after = file.read_text()
        for mark, lines in made.items():
            after = part(after, mark, lines)
        if before == after:
            continue
        if check:
            print(f"{name}: not as settings.def says; run {HERE.relative_to(ROOT)}/settings_documents.py")
        else:
            file.write_text(after)


if __name__ == "__main__":
    main()
