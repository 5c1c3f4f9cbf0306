# SPDX-License-Identifier: GPL-2.0-or-later
"""A pool of the CUDA driver over six calls: the bytes that the program has, that
the driver holds, and that are charged. docs/explanation/pools.md tells more."""

from .drawing import LIMIT, RAM, SMALL, VRAM, Page

# Each call and its note; in MiB: has, holds, charged.
CALLS = (("begin", "24 MiB are asked for", 0, 0, 24),
         ("end", "the driver took 32", 24, 32, 32),
         ("allocate", "8 MiB more", 32, 32, 32),
         ("free", "both", 0, 32, 32),
         ("allocate", "24 MiB again", 24, 32, 32),
         ("trim", "the pool is empty", 0, 0, 0))
LEFT, BOTTOM, MIB = 52, 182, 4.3


def draw(plt):
    page = Page(plt, 620, 248)
    page.words(8, 14, "A pool of the driver, call by call", bold=True,
               align="left")
    wide = (page.width - LEFT - 6) / len(CALLS)
    for mib in (0, 16, 32):
        y = BOTTOM - mib * MIB
        page.line(LEFT, y, page.width - 6, y, faint=True)
        page.words(LEFT - 6, y, f"{mib} MiB", align="right", size=SMALL)
    for number, (call, note, has, holds, charged) in enumerate(CALLS):
        x = LEFT + (number + 0.5) * wide
        bar(page, x, 60, holds, RAM, 0.18)
        bar(page, x, 38, has, VRAM, 0.6)
        y = BOTTOM - charged * MIB
        page.line(x - 40, y, x + 40, y, LIMIT, width=2)
        page.words(x, BOTTOM + 14, call, bold=True, room=wide)
        page.words(x, BOTTOM + 27, note, size=SMALL, room=wide)
    y = 234
    for x, color, strength, text in ((LEFT, VRAM, 0.6, "the program has"),
                                     (LEFT + 130, RAM, 0.18,
                                      "the driver holds")):
        page.box(x, y - 6, 18, 12, color, strength=strength, radius=2)
        page.words(x + 24, y, text, align="left", size=SMALL)
    page.line(LEFT + 260, y, LEFT + 278, y, LIMIT, width=2)
    page.words(LEFT + 284, y, "the share is charged", align="left", size=SMALL)
    return page.figure


def bar(page, middle, width, mib, color, strength):
    if mib:
        page.box(middle - width / 2, BOTTOM - mib * MIB, width, mib * MIB,
                 color, strength=strength, radius=2)
