# SPDX-License-Identifier: GPL-2.0-or-later
"""The halves of emuV, and the wings of its CUDA library: those that a wing may
include by scripts/check-wings, and those that it does include."""

import importlib.machinery
import importlib.util
import pathlib

from .drawing import LINE, OTHER, PURE, RAM, SMALL, TEXT, VRAM, Page

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Of each wing its contents, and whether it knows nothing of the driver.
WINGS = {
    "hooks": ("entry points of CUDA; thin", False),
    "nvml": ("answers of NVML; a library of its own", False),
    "memory": ("the table of allocations", False),
    "movement": ("moves safely, decides nothing", False),
    "store": ("sources of spilled memory", False),
    "proof": ("kernels' accesses, off machine code", True),
    "account": ("every byte charged; who can free some", False),
    "interpose": ("the generic forwarder", False),
    "record": ("tapes of what a program does", False),
    "policy": ("decides what moves; no lock, no driver", True),
    "base": ("driver table, threads, settings, trace", False),
}

ROW, COLUMN = 20, 13.5
NAMES, MATRIX, FIRST = 22, 282, 142  # left, left, and top of the rows


def wings():
    """scripts/check-wings, which holds the order."""
    loader = importlib.machinery.SourceFileLoader(
        "check_wings", str(ROOT / "scripts/check-wings"))
    made = importlib.util.module_from_spec(
        importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(made)
    return made


def data():
    """Beside this file, what the picture shows: the wings from the top, with
    those that each may include and those that it includes."""
    order = wings()
    names = [wing for floor in reversed(order.FLOORS) for wing in floor]
    includes = {name: set() for name in names}
    for file in order.LIBRARY.rglob("*.?pp"):
        wing = order.wing_of(file)
        if wing in includes:
            includes[wing].update(order.wing_of(other)
                                  for _, other in order.named_by(file))
    return [{"wing": name, "floor": order.FLOOR[name],
             "may": [other for other in names if order.may_include(name, other)],
             "does": [other for other in names
                      if other != name and other in includes[name]]}
            for name in names]


def draw(plt):
    page = Page(plt, 622, 492)
    library(page, data())
    machine(page)
    return page.figure


def library(page, rows):
    """The process, with a row for each wing."""
    if {row["wing"] for row in rows} != set(WINGS):
        raise ValueError("scripts/pictures/halves.py has other wings than "
                         "scripts/check-wings")
    bottom = FIRST + len(rows) * ROW
    right = MATRIX + len(rows) * COLUMN + 4
    page.box(6, 6, right + 6, bottom + 8, LINE, strength=0.05)
    page.words(18, 18, "a tenant's process", align="left", size=SMALL)
    page.card(14, 28, right - 10, 22, LINE,
              "the program and its frameworks, unmodified", plain=True)
    page.way((150, 50), (150, 66))
    page.box(14, 66, right - 10, bottom - 62, RAM, strength=0.06, edge=0.5)
    page.words(NAMES, 80, "the CUDA library", bold=True, color=RAM,
               align="left")
    page.words(NAMES, 95, "placement, movement, queries, in wings",
               align="left", size=SMALL)
    page.box(NAMES, 107, 8, 8, RAM, strength=0.25, edge=0, radius=0)
    page.words(NAMES + 13, 111, "a wing may include those below",
               align="left", size=SMALL)
    page.dot(NAMES + 4, 125, RAM, 3)
    page.words(NAMES + 13, 125, "and includes this one", align="left",
               size=SMALL)
    page.box(NAMES + 128, 121, 8, 8, PURE, strength=0.25, edge=0, radius=0)
    page.words(NAMES + 141, 125, "knows no driver", align="left", size=SMALL)
    at = {row["wing"]: MATRIX + (number + 0.5) * COLUMN
          for number, row in enumerate(rows)}
    for number, row in enumerate(rows):
        wing(page, row, FIRST + number * ROW, at, right)
        page.words(at[row["wing"]], FIRST - 5, row["wing"], align="left",
                   size=SMALL, upright=True)


def wing(page, row, y, at, right):
    """A wing's row: its name, what it holds, what it includes."""
    name = row["wing"]
    holds, pure = WINGS[name]
    color = PURE if pure else RAM
    if row["floor"] % 2:
        page.box(NAMES - 4, y, right - NAMES + 4, ROW, LINE, strength=0.09, edge=0,
                 radius=0, z=0)
    middle = y + ROW / 2
    page.box(NAMES, y + 2, 62, ROW - 4, color)
    page.words(NAMES + 31, middle, name, bold=True, color=color, room=58)
    page.words(NAMES + 69, middle, holds, align="left", size=SMALL,
               room=MATRIX - NAMES - 71)
    for other in row["may"]:
        page.box(at[other] - COLUMN / 2 + 0.75, y + (ROW - COLUMN) / 2 + 0.75,
                 COLUMN - 1.5, COLUMN - 1.5, color, strength=0.2, edge=0,
                 radius=0)
    for other in row["does"]:
        page.dot(at[other], middle, color, 3)
    page.box(at[name] - COLUMN / 2 + 2, y + (ROW - COLUMN) / 2 + 2,
             COLUMN - 4, COLUMN - 4, color, strength=0.6, edge=0, radius=1)


def machine(page):
    """The command line, the driver, the card, and the ways between them."""
    page.card(490, 66, 126, 88, OTHER, "emuvctl", "for root: create,",
              "resize, destroy, apply", "for tenants: run, why,",
              "top, estimate, report")
    page.way((490, 110), (447, 110))
    page.words(470, 101, "run", size=SMALL)
    page.card(6, 430, 130, 54, TEXT, "the card", "and its own driver")
    page.card(236, 430, 380, 54, VRAM, "the driver: emuv.ko",
              "/dev/emuvN  ·  /dev/emuv-control  ·  /sys/class/emuv",
              "ledger, regions, chunks (2 MiB of system RAM each)")
    page.way((70, 376), (70, 430))
    page.words(77, 404, "libcuda", align="left", size=SMALL)
    page.way((320, 376), (320, 430))
    page.words(327, 404, "charge, allocate, map, report", align="left",
               size=SMALL)
    page.way((510, 154), (510, 430))
    page.words(517, 260, "create, destroy", align="left", size=SMALL)
    page.way((596, 430), (596, 154))
    page.words(589, 310, "sysfs:", align="right", size=SMALL)
    page.words(589, 321, "one value a file", align="right", size=SMALL)
    page.way((236, 457), (136, 457))
    page.words(186, 448, "pinned chunks,", size=SMALL)
    page.words(186, 467, "read over the link", size=SMALL)
