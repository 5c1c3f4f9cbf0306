#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Results of benchmarks as JSON files; docs/results/README.md has the format.

As a module: start, table and write make such a file, problems checks one. As a
program it turns the rows of a text table, read from its input, into such a
file. A word is a cell, and a dash is a cell that was not measured."""

import argparse
import datetime
import json
import math
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCHEMA = 1
# The fields that a file must have, and their types.
TEXT = (str,)
TEXT_OR_NULL = (str, type(None))
FIELDS = {"schema": (int,), "benchmark": TEXT, "title": TEXT,
          "command": TEXT_OR_NULL, "commit": TEXT_OR_NULL,
          "card": TEXT_OR_NULL, "driver": TEXT_OR_NULL,
          "link_gb_s": (int, float, type(None)), "date": TEXT_OR_NULL,
          "tables": (list,)}
MAY_HAVE = {"recorded": TEXT, "note": TEXT, "detail": (bool,)}
OF_TABLE = {"unit": TEXT_OR_NULL, "columns": (list,), "rows": (list,)}
TABLE_MAY_HAVE = {"title": TEXT, "detail": (bool,)}
OF_COLUMN = {"name": TEXT, "title": TEXT}
COLUMN_MAY_HAVE = {"unit": TEXT, "detail": (bool,)}

COMMIT = re.compile(r"[0-9a-f]{7,40}(-dirty)?")
NAME = re.compile(r"[a-z][a-z0-9_]*")
# Text that is nothing but numbers, several of them perhaps.
NUMBERS = re.compile(r"[-~<>±]?[0-9.]+([-–,;/ ]|to|[0-9.])*")


def said(command):
    """The first line that @p command prints; None where it fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, text=True, check=True,
                              capture_output=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return (done.stdout.strip().splitlines() or [None])[0]


def commit():
    """The tree's commit; "-dirty" behind it where files have changed since.
    EMUV_COMMIT names it for a copy of the tree that git knows nothing of."""
    return os.environ.get("EMUV_COMMIT") or said(["git", "describe", "--always", "--dirty", "--abbrev=7",
                 "--exclude=*"])


def start(benchmark, title, command, card=True, link=None):
    """A file without tables, of the tree and the machine that this runs on."""
    name = driver = None
    if card:
        line = said(["nvidia-smi", "--query-gpu=name,driver_version",
                     "--format=csv,noheader"])
        name, driver = line.split(", ") if line else (None, None)
    return {"schema": SCHEMA, "benchmark": benchmark, "title": title,
            "command": command, "commit": commit(),
            "card": name if card else "none", "driver": driver,
            "link_gb_s": link,
            "date": datetime.datetime.now(datetime.timezone.utc)
                    .date().isoformat(), "tables": []}


def column(text):
    """A column of NAME, NAME=TITLE or NAME=TITLE=UNIT."""
    name, *rest = text.split("=")
    made = {"name": name,
            "title": rest[0] if rest and rest[0] else name.replace("_", " ")}
    if len(rest) > 1:
        made["unit"] = rest[1]
    return made


def table(unit, columns, rows, title=None):
    """A table; @p rows are lists of cells, in the order of @p columns."""
    made = {"title": title} if title else {}
    names = [one["name"] for one in columns]
    made.update(unit=unit, columns=columns,
                rows=[dict(zip(names, row, strict=True)) for row in rows])
    return made


def text_of(document):
    """The file's text: a row a line."""
    rows = []

    def held(value):
        rows.append(json.dumps(value, ensure_ascii=False))
        return f"@row {len(rows) - 1}@"

    lines = dict(document, tables=[
        dict(one, columns=[held(each) for each in one["columns"]],
             rows=[held(each) for each in one["rows"]])
        for one in document["tables"]])
    text = json.dumps(lines, indent=2, ensure_ascii=False)
    return re.sub(r'"@row (\d+)@"', lambda at: rows[int(at[1])], text) + "\n"


def write(path, document):
    """Leave the file; refuse what is none."""
    found = problems(document)
    if found:
        raise ValueError(f"{path}: {found[0]}")
    pathlib.Path(path).write_text(text_of(document), encoding="utf-8")


def read(path):
    """A file's document. Numbers that JSON does not have are refused."""
    def refuse(word):
        raise ValueError(f"{word} is no number of JSON")
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"),
                      parse_constant=refuse)


def misfits(what, where, required, optional):
    """The fields that @p what, an object, lacks or has too much of."""
    if not isinstance(what, dict):
        return [f"{where}: not an object"]
    found = [f"{where}: no {name}" for name in required if name not in what]
    for name, value in what.items():
        types = required.get(name) or optional.get(name)
        if types is None:
            found.append(f"{where}: unknown field {name}")
        elif not isinstance(value, types) or \
                (isinstance(value, bool) and bool not in types):
            found.append(f"{where}: {name} has the wrong type")
    return found


def is_number(value):
    """True if a cell holds a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def misfits_of_cell(value, has_unit, where):
    """The mistakes in one cell."""
    if is_number(value):
        if not math.isfinite(value):
            return [f"{where}: not finite"]
        return [] if has_unit else [f"{where}: a number without a unit"]
    if isinstance(value, str):
        if not value.strip():
            return [f"{where}: empty text; null is for what was not measured"]
        if NUMBERS.fullmatch(value.strip()):
            return [f"{where}: numbers as text: {value}"]
        return []
    return [] if value is None else [f"{where}: neither number, text nor null"]


def misfits_of_table(one, where):
    """The mistakes in one table."""
    found = misfits(one, where, OF_TABLE, TABLE_MAY_HAVE)
    if found:
        return found
    for number, each in enumerate(one["columns"], 1):
        found += misfits(each, f"{where}, column {number}", OF_COLUMN,
                         COLUMN_MAY_HAVE)
    if found:
        return found
    names = [each["name"] for each in one["columns"]]
    found += [f"{where}: {name} is no name of a column" for name in names
              if not NAME.fullmatch(name)]
    if len(set(names)) < len(names) or not names:
        found.append(f"{where}: columns without a name of their own")
    for number, row in enumerate(one["rows"], 1):
        at = f"{where}, row {number}"
        if not isinstance(row, dict) or list(row) != names:
            found.append(f"{at}: its cells are not the columns'")
            continue
        for each in one["columns"]:
            unit = each.get("unit", one["unit"])
            found += misfits_of_cell(
                row[each["name"]],
                unit is not None or isinstance(row.get("unit"), str),
                f"{at}, {each['name']}")
    return found


def is_day(text):
    """True if @p text is a day as ISO 8601 has it."""
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def problems(document):
    """The mistakes in @p document; none if it keeps to the format."""
    found = misfits(document, "file", FIELDS, MAY_HAVE)
    if found:
        return found
    if document["schema"] != SCHEMA:
        found.append(f"file: schema {document['schema']} is unknown")
    if document["commit"] is not None and \
            not COMMIT.fullmatch(document["commit"]):
        found.append(f"file: {document['commit']} is no commit")
    for name in ("date", "recorded"):
        if document.get(name) is not None and not is_day(document[name]):
            found.append(f"file: {name} is no day: {document[name]}")
    if not document["tables"]:
        found.append("file: no table")
    for number, one in enumerate(document["tables"], 1):
        found += misfits_of_table(one, f"table {number}")
    return found


def cell(word):
    """The cell that a word of a text table stands for."""
    if word == "-":
        return None
    try:
        number = float(word)
    except ValueError:
        return word.replace("_", " ")
    return int(word) if re.fullmatch(r"-?[0-9]+", word) else number


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--benchmark", required=True, metavar="NAME")
    parser.add_argument("--title", required=True)
    parser.add_argument("--command", required=True)
    parser.add_argument("--unit", default=None)
    parser.add_argument("--link", type=float, default=None, metavar="GB/S")
    parser.add_argument("--columns", required=True,
                        metavar="NAME[=TITLE[=UNIT]],...")
    options = parser.parse_args()
    columns = [column(one) for one in options.columns.split(",")]
    rows = [[cell(word) for word in line.split()] for line in sys.stdin
            if line.strip()]
    document = start(options.benchmark, options.title, options.command,
                     link=options.link)
    try:
        document["tables"] = [table(options.unit, columns, rows)]
        write(options.file, document)
    except (OSError, ValueError) as error:
        sys.exit(f"results.py: {options.file}: {error}")


if __name__ == "__main__":
    main()
