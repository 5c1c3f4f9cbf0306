# SPDX-License-Identifier: GPL-2.0-or-later
"""The questions about a launch, in their order, that find it trusted or not.
docs/explanation/trust.md tells more; known_kernels::judge() asks them."""

from .drawing import LIMIT, LINE, PURE, SMALL, VRAM, Page

LEFT, WIDE = 166, 264
MIDDLE, RIGHT = LEFT + WIDE / 2, LEFT + WIDE
YES, NO = (8, 100), (514, 100)  # where the answers stand, and their widths

# Each question, with its box: top, height, colour.
QUESTIONS = (
    (28, 50, LINE, "Is it barred?",
     "named after a minus in EMUV_TRUST; seen with a fault;",
     "name or parameters unknown; over 1,024 addresses"),
    (98, 26, LINE, "Does EMUV_TRUST name it?"),
    (144, 26, LINE, "Is it NCCL's or NVSHMEM's?"),
    (190, 38, PURE, "Is there a verdict?",
     "the proof of its code, kept or made"),
    (248, 38, PURE, "Does each access go by a parameter?",
     "one parameter, plus numbers"),
    (306, 38, PURE, "Do those parameters fit?",
     "in this launch they lie in known memory"),
    (372, 62, LINE, "Does a name vouch for it?",
     "that of cuBLAS, cuDNN, PyTorch and others. None does",
     "that tells of tables, or where a loaded number",
     "is added to a parameter in no known memory."))


def draw(plt):
    page = Page(plt, 622, 446)
    page.words(MIDDLE, 8, "a launch")
    page.way((MIDDLE, 15), (MIDDLE, QUESTIONS[0][0]))
    for top, high, color, title, *lines in QUESTIONS:
        page.card(LEFT, top, WIDE, high, color, title, *lines)
    for (top, high, *_), (below, *_), answer in zip(
            QUESTIONS, QUESTIONS[1:], ("no", "no", "no", "yes", "yes", "no")):
        page.way((MIDDLE, top + high), (MIDDLE, below))
        page.words(MIDDLE + 6, (top + high + below) / 2 - 1, answer,
                   align="left", size=SMALL)
    middles = [top + high / 2 for top, high, *_ in QUESTIONS]
    page.card(YES[0], 98, YES[1], 336, VRAM, "trusted", "Other memory", "moves beside it.")
    page.card(NO[0], 28, NO[1], 406, LIMIT, "untrusted", "It waits in its",
              "stream until all", "memory is mapped.", "Nothing moves", "meanwhile.")
    for number, answer in ((1, "yes"), (5, "yes"), (6, "yes")):
        page.way((LEFT, middles[number]), (YES[0] + YES[1], middles[number]))
        page.words((LEFT + YES[0] + YES[1]) / 2 + 3, middles[number] - 8,
                   answer, size=SMALL)
    for number, answer in ((0, "yes"), (2, "yes"), (3, "not yet"),
                           (4, "from memory"), (6, "no")):
        y = middles[number] - (8 if number == 4 else 0)
        page.way((RIGHT, y), (NO[0], y))
        page.words((RIGHT + NO[0]) / 2 - 3, y - 8, answer, size=SMALL)
    # Code that cannot be followed proves nothing.
    page.way((RIGHT, middles[4] + 10), (RIGHT + 16, middles[4] + 10),
             (RIGHT + 16, middles[6] - 18), (RIGHT, middles[6] - 18))
    page.words(RIGHT + 21, 316, "cannot", align="left", size=SMALL)
    page.words(RIGHT + 21, 327, "be followed", align="left", size=SMALL)
    return page.figure
