# SPDX-License-Identifier: GPL-2.0-or-later
"""One round of a program that uses six units in turn, in VRAM for four.
docs/explanation/movement.md tells more."""

from .drawing import NOWHERE, OTHER, RAM, SMALL, VRAM, Page

UNITS = 6
ROOM = 4  # units in VRAM
# The units that leave for a gap: the slots in which they are copied out and in.
# Each is used in the slot of its own number.
GAPS = {0: (1, 4), 2: (3, 0), 4: (5, 2)}

LEFT, TOP, WIDE, HIGH = 70, 34, 88, 26


def is_away(unit, slot):
    """True from the copy out to the end of the copy in."""
    if unit not in GAPS:
        return False
    out, back = GAPS[unit]
    return (slot - out) % UNITS <= (back - out) % UNITS


def draw(plt):
    for slot in range(UNITS):
        away = [unit for unit in range(UNITS) if is_away(unit, slot)]
        if len(away) != UNITS - ROOM or slot in away:
            raise ValueError(f"the units that are away in slot {slot}: {away}")
    page = Page(plt, 620, 306)
    right = LEFT + UNITS * WIDE
    page.words(LEFT, 12, "one round of the program", align="left", size=SMALL)
    page.way((LEFT + 118, 12), (right, 12))
    bottom = TOP + UNITS * HIGH + 72
    for slot in range(UNITS + 1):
        page.line(LEFT + slot * WIDE, TOP - 12, LEFT + slot * WIDE, bottom,
                  faint=True)
    for slot in range(UNITS):
        page.words(LEFT + (slot + 0.5) * WIDE, TOP - 8,
                   f"step {slot + 1}", size=SMALL)
    for unit in range(UNITS):
        row(page, unit, TOP + unit * HIGH + 2)
    y = TOP + UNITS * HIGH + 12
    for name, which, color in (("link, in", 1, RAM), ("link, out", 0, OTHER)):
        page.words(LEFT - 8, y + 10, name, align="right")
        for unit, gap in GAPS.items():
            x = LEFT + gap[which] * WIDE
            page.box(x + 2, y, WIDE - 4, 20, color, strength=0.3, radius=3)
            page.words(x + WIDE / 2, y + 10, f"unit {unit + 1}")
        y += 26
    legend(page, bottom + 18)
    return page.figure


def row(page, unit, y):
    """A unit's round: runs of slots in one state are one bar."""
    page.words(LEFT - 8, y + 10, f"unit {unit + 1}", align="right")
    states = ["used" if slot == unit else
              "away" if is_away(unit, slot) else "here"
              for slot in range(UNITS)]
    begin = 0
    for slot in range(1, UNITS + 1):
        if slot < UNITS and states[slot] == states[begin]:
            continue
        bar(page, states[begin], LEFT + begin * WIDE + 2, y,
            (slot - begin) * WIDE - 4)
        begin = slot


def bar(page, state, x, y, length, high=20):
    if state == "away":
        page.box(x, y, length, high, NOWHERE, strength=0.04, dashed=True,
                 radius=3)
    else:
        page.box(x, y, length, high, VRAM, radius=3,
                 strength=0.75 if state == "used" else 0.18)


def legend(page, y):
    for x, state, text in ((LEFT, "used", "in use"),
                           (LEFT + 90, "here", "resident"),
                           (LEFT + 190, "away", "away, or on its way")):
        bar(page, state, x, y - 6, 18, 12)
        page.words(x + 24, y, text, align="left", size=SMALL)
    for x, color, text in ((LEFT + 330, RAM, "fetched"),
                           (LEFT + 420, OTHER, "evicted")):
        page.box(x, y - 6, 18, 12, color, strength=0.3, radius=3)
        page.words(x + 24, y, text, align="left", size=SMALL)
