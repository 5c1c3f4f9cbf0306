#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies the documents that are installed, with links that lead somewhere there.

They keep their places to each other. A link to a file that lies elsewhere once
installed is led there, as the arguments SOURCE:PLACE say. A link to a manual
page, or to what is not installed, becomes its text.
"""

import argparse
import os
import pathlib
import re
import shutil

ROOT = pathlib.Path(__file__).resolve().parent.parent

DOCUMENTS = (
    "README.md", "CHANGELOG.md", "DESIGN.md", "SECURITY.md", "docs/tutorial.md",
    "docs/results.md", "docs/howto/*.md", "docs/explanation/*", "docs/reference/*",
    "docs/ABI/*", "docs/plots/*.svg",
)

# A block or a word of code, which holds no links, or [text](target).
PART = re.compile(
    r"^ {0,3}(?P<fence>```+|~~~+).*?^ {0,3}(?P=fence)[`~]*[ \t]*$"
    r"|(?<!`)(?P<ticks>`+)(?!`)(?:(?!\n\n).)+?(?<!`)(?P=ticks)(?!`)"
    r"|(?P<picture>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]"
    r"\((?P<path>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)",
    re.M | re.S)


def retarget(text, document, kept, places):
    """The text of a document, its links led to where things are installed.

    document: its path below ROOT. kept: paths of all documents. places: where
    other paths lie, each relative to the documents' folder.
    """
    def link(match):
        path = match["path"]
        if not path or re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//", path):
            return match.group()  # code, an anchor of its own, the network
        target = os.path.normpath(document.parent / path)
        if target in places:
            place = os.path.relpath(places[target], document.parent)
            return f"{match['picture']}[{match['text']}]({place})"
        if target in kept or any(one.startswith(target + "/") for one in kept):
            return match.group()
        return match["text"]

    return PART.sub(link, text)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True,
                        help="the folder to make anew")
    parser.add_argument("--docs", required=True,
                        help="the place at which the folder will be installed")
    parser.add_argument("places", metavar="SOURCE:PLACE", nargs="*")
    options = parser.parse_args()
    places = {}
    for place in options.places:
        source, _, installed = place.partition(":")
        places[source] = os.path.relpath(installed, options.docs)
    for name in ("LICENSE", "LICENSES"):
        places.setdefault(name, name)
    kept = {str(path.relative_to(ROOT))
            for pattern in DOCUMENTS for path in ROOT.glob(pattern)}
    shutil.rmtree(options.out, ignore_errors=True)
    for name in sorted(kept):
        target = options.out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            text = (ROOT / name).read_text(encoding="utf-8")
            target.write_text(retarget(text, pathlib.Path(name), kept, places),
                              encoding="utf-8")
        else:
            shutil.copyfile(ROOT / name, target)


if __name__ == "__main__":
    main()
