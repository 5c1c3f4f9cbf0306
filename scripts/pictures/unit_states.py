# SPDX-License-Identifier: GPL-2.0-or-later
"""The states of a unit that moves, and the ways between them, by where it is
mapped. The table in docs/explanation/safety.md has the rest."""

from .drawing import NOWHERE, RAM, SMALL, TEXT, VRAM, Page

WIDE, HIGH = 128, 52
COLUMNS = (24, 178, 332, 486)
FETCH, REST, EVICT = 36, 138, 240  # rows


def draw(plt):
    page = Page(plt, 622, 370)
    cards(page)
    middle = [x + WIDE / 2 for x in COLUMNS]
    below = [y + HIGH for y in (FETCH, REST, EVICT)]
    fetch, rest, evict = (y + HIGH / 2 for y in (FETCH, REST, EVICT))

    # In, along the top.
    page.way((middle[0] - 20, REST), (middle[0] - 20, below[0]))
    page.words(middle[0] - 26, (below[0] + REST) / 2, "due", align="right",
               size=SMALL)
    page.way((COLUMNS[0] + WIDE, fetch), (COLUMNS[1], fetch))
    page.way((COLUMNS[1] + WIDE, fetch), (COLUMNS[2], fetch))
    page.way((COLUMNS[2] + WIDE, fetch), (middle[3], fetch), (middle[3], REST))
    # Out, along the bottom.
    page.way((middle[3] + 20, below[1]), (middle[3] + 20, EVICT))
    page.words(middle[3] + 26, (below[1] + EVICT) / 2 - 5, "needed",
               align="left", size=SMALL)
    page.words(middle[3] + 26, (below[1] + EVICT) / 2 + 6, "last",
               align="left", size=SMALL)
    page.way((COLUMNS[3], evict), (COLUMNS[2] + WIDE, evict))
    page.way((COLUMNS[2], evict), (COLUMNS[1] + WIDE, evict))
    page.way((middle[1] - 22, EVICT), (middle[1] - 22, rest + 8),
             (COLUMNS[0] + WIDE, rest + 8))
    # Mapped nowhere, for the whole of a gap.
    page.way((middle[2], below[2]), (middle[2], below[2] + 20),
             (middle[0], below[2] + 20), (middle[0], below[2]))
    page.words((middle[0] + middle[2]) / 2, below[2] + 29,
               "EMUV_AWAY=unmapped, if nothing of its block is used before it "
               "is back", size=SMALL)
    page.way((middle[0] - 20, EVICT), (middle[0] - 20, below[1]))
    page.words(middle[0] - 14, (below[1] + EVICT) / 2 - 5,
               "its block is named, or", align="left", size=SMALL)
    page.words(middle[0] - 14, (below[1] + EVICT) / 2 + 6,
               "untrusted work comes", align="left", size=SMALL)
    page.way((COLUMNS[0], evict), (8, evict), (8, 20), (middle[1], 20),
             (middle[1], FETCH))
    page.words(18, 11, "due: mapped nowhere until it is in VRAM", align="left",
               size=SMALL)
    called_off(page, middle, below, rest)
    legend(page)
    return page.figure


def cards(page):
    """The states, from left to right."""
    for column, row, color, title, *lines in (
            (0, FETCH, RAM, "fetching", "a frame is found,", "or made"),
            (1, FETCH, NOWHERE, "fetching", "copied,", "read for a digest"),
            (2, FETCH, NOWHERE, "being mapped", "in VRAM: a millisecond,",
             "or less"),
            (0, REST, RAM, "in system RAM", "until it is due"),
            (3, REST, VRAM, "resident", "in VRAM"),
            (3, EVICT, VRAM, "evicting", "a room is found,", "or made"),
            (2, EVICT, NOWHERE, "evicting", "read; copied if dirty;",
             "its frame is wanted"),
            (1, EVICT, NOWHERE, "being mapped", "in system RAM:",
             "a millisecond, or less"),
            (0, EVICT, NOWHERE, "away", "in system RAM,", "without a mapping")):
        page.card(COLUMNS[column], row, WIDE, HIGH, color, title, *lines)


def called_off(page, middle, below, rest):
    """The ways back, up to where new memory is mapped."""
    page.way((middle[0] + 20, below[0]), (middle[0] + 20, REST), color=TEXT,
             dashed=True)
    page.way((middle[1] - 22, below[0]), (middle[1] - 22, rest - 8),
             (COLUMNS[0] + WIDE, rest - 8), color=TEXT, dashed=True)
    page.way((middle[3] - 20, EVICT), (middle[3] - 20, below[1]), color=TEXT,
             dashed=True)
    page.way((middle[2] + 22, EVICT), (middle[2] + 22, rest), (COLUMNS[3], rest),
             color=TEXT, dashed=True)
    for y, text in ((rest - 22, "Called off:"),
                    (rest - 10, "its block is named, or"),
                    (rest + 2, "untrusted work comes")):
        page.words((COLUMNS[1] + COLUMNS[2] + WIDE) / 2, y, text, size=SMALL)


def legend(page):
    y = 360
    for x, color, text in ((24, VRAM, "mapped in VRAM"),
                           (140, RAM, "mapped in system RAM"),
                           (284, NOWHERE, "mapped nowhere: a touch faults")):
        page.box(x, y - 6, 18, 12, color, radius=3)
        page.words(x + 24, y, text, align="left", size=SMALL)
    page.way((470, y), (492, y), color=TEXT, dashed=True)
    page.words(498, y, "called off", align="left", size=SMALL)
