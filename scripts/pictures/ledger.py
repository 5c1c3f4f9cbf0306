# SPDX-License-Identifier: GPL-2.0-or-later
"""The accounts of an instance's clients, which add up to its sums below its
limits. docs/explanation/ledger.md tells more."""

from .drawing import LIMIT, LINE, OTHER, PURE, RAM, SMALL, TEXT, VRAM, Page

COLORS = {"client 1": RAM, "client 2": VRAM, "client 3": OTHER,
          "unowned": TEXT}
# Each sum: its name, its unit, its accounts, its limit, and the charge that waits.
SUMS = (("physical", "VRAM", (("client 1", 190), ("client 2", 130),
                              ("client 3", 70)), 430, ("client 2 waits", 96)),
        ("virtual", "system RAM", (("client 1", 120), ("client 2", 90),
                                   ("unowned", 80)), 400, None))
RULES = ("Unowned: a region whose allocator let go of it, held by another client, "
         "a mapping, a device or a pin.",
         "Sum and account change in one critical section. A limit is checked "
         "where the sum changes.",
         "A charge that does not fit fails, or waits in order of arrival. Free "
         "bytes belong to those that wait.",
         "The kernel closes a client's file however its process ended. Its "
         "account is zero then.")


def draw(plt):
    page = Page(plt, 620, 238)
    page.words(8, 14, "The ledger of one instance", bold=True, align="left")
    left, y = 84, 38
    for name, unit, accounts, limit, waiting in SUMS:
        page.words(left - 8, y + 10, name, bold=True, align="right")
        page.words(left - 8, y + 23, unit, align="right", size=SMALL)
        x = left
        for client, length in accounts:
            page.box(x + 1, y, length - 2, 32, COLORS[client], strength=0.3,
                     radius=3)
            page.words(x + length / 2, y + 16, client, room=length - 4)
            x += length
        free = left + limit - x
        page.box(x + 1, y, free - 4, 32, LINE, strength=0, dashed=True,
                 radius=3)
        page.words(x + free / 2 - 1, y + 16, "free", room=free)
        at = left + limit
        page.line(at, y - 7, at, y + 39, LIMIT, width=2)
        page.words(at, y + 47, f"{name} limit", color=LIMIT, size=SMALL)
        if waiting:
            page.box(at + 4, y, waiting[1] - 4, 32, PURE, strength=0.1,
                     dashed=True, radius=3)
            page.words(at + waiting[1] / 2 + 2, y + 16, waiting[0],
                       room=waiting[1] - 6)
        y += 68
    for number, rule in enumerate(RULES):
        page.words(8, 184 + 14 * number, rule, align="left", size=SMALL,
                   room=page.width - 12)
    return page.figure
