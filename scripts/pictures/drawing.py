# SPDX-License-Identifier: GPL-2.0-or-later
"""Boxes, words and arrows on a page, for the pictures. Lengths are points, and y
grows downwards. Every colour can be read on white and on a dark page alike."""

TEXT = "#7b828c"
LINE = "#8a919b"
# A colour means the same in all pictures.
VRAM = "#1f9e77"
RAM = "#2f86d6"
NOWHERE = "#d9662b"
LIMIT = "#d0454c"
OTHER = "#b0699e"
PURE = "#a88a1e"

WORD = 9  # sizes of type
SMALL = 8
MARGIN = 4  # of words in a box
HEAD = 5.5  # an arrow's length
CORNER = 6


class Page:
    """A page without a background. Words that do not fit their box are refused."""

    def __init__(self, plt, width, height):
        self.figure = plt.figure(figsize=(width / 72, height / 72))
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(height, 0))
        self.axes.axis("off")
        self.width = width

    def box(self, x, y, width, height, color=LINE, *, strength=0.16,
            edge=0.9, dashed=False, radius=4, z=1):
        """A rectangle, filled with so much of its colour."""
        from matplotlib import colors, patches
        shape = f"round,pad=0,rounding_size={radius}" if radius else "square,pad=0"
        self.axes.add_patch(patches.FancyBboxPatch(
            (x, y), width, height, boxstyle=shape, mutation_aspect=1,
            fc=colors.to_rgba(color, strength), ec=colors.to_rgba(color, edge),
            lw=1 if edge else 0, ls=(0, (4, 3)) if dashed else "-",
            clip_on=False, zorder=z))

    def words(self, x, y, text, *, align="center", bold=False, color=TEXT,
              size=WORD, room=None, upright=False):
        """A line of text whose middle is at that height.
        @param room  the width that it has
        @param upright  it is read from below, and the middle is at x"""
        if room is not None and self.length_of(text, bold, size) > room:
            raise ValueError(f"{text!r} takes more than {room} points")
        drop = 0.36 * size  # from the middle of a line to its foot
        self.axes.text(x + drop * upright, y + drop * (not upright), text,
                       ha=align, va="baseline", color=color, size=size,
                       weight="bold" if bold else "normal",
                       rotation=90 if upright else 0, rotation_mode="anchor",
                       clip_on=False, zorder=5)

    @staticmethod
    def length_of(text, bold=False, size=WORD):
        """The width of a line of text."""
        from matplotlib import font_manager, textpath
        font = font_manager.FontProperties(
            family="DejaVu Sans", weight="bold" if bold else "normal",
            size=size)
        return textpath.TextPath((0, 0), text, prop=font).get_extents().width

    def card(self, x, y, width, height, color, title, *lines, plain=False,
             dashed=False, gap=12):
        """A box with a title and smaller lines, all in its middle.
        @param plain  the title is a line like any other"""
        self.box(x, y, width, height, color, dashed=dashed)
        at = y + height / 2 - gap * len(lines) / 2
        room = width - 2 * MARGIN
        self.words(x + width / 2, at, title, bold=not plain, room=room,
                   color=TEXT if plain else color)
        for line in lines:
            at += gap
            self.words(x + width / 2, at, line, room=room,
                       size=WORD if plain else SMALL)

    def way(self, *points, color=LINE, dashed=False, head=True):
        """An arrow along these points, round at its corners."""
        from matplotlib import patches, path
        (x0, y0), (x1, y1) = points[-2:]
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        dx, dy = (x1 - x0) / length, (y1 - y0) / length
        if head:
            back = (x1 - HEAD * dx, y1 - HEAD * dy)
            side = 0.42 * HEAD
            self.axes.add_patch(patches.Polygon(
                [(x1, y1), (back[0] - side * dy, back[1] + side * dx),
                 (back[0] + side * dy, back[1] - side * dx)],
                fc=color, ec="none", clip_on=False, zorder=3))
            points = (*points[:-1], (x1 - 0.7 * HEAD * dx, y1 - 0.7 * HEAD * dy))
        there, codes = [points[0]], [path.Path.MOVETO]
        for before, at, after in zip(points, points[1:], points[2:]):
            there += [_towards(at, before), at, _towards(at, after)]
            codes += [path.Path.LINETO, path.Path.CURVE3, path.Path.CURVE3]
        self.axes.add_patch(patches.PathPatch(
            path.Path([*there, points[-1]], [*codes, path.Path.LINETO]),
            fc="none", ec=color, lw=1.1, ls=(0, (4, 3)) if dashed else "-",
            capstyle="butt", clip_on=False, zorder=2))

    def line(self, x0, y0, x1, y1, color=LINE, *, width=1.0, faint=False):
        """A line; a faint one is behind all else."""
        self.axes.plot((x0, x1), (y0, y1), color=color, lw=width,
                       alpha=0.35 if faint else 1, solid_capstyle="butt",
                       clip_on=False, zorder=0 if faint else 2)

    def dot(self, x, y, color, radius=3):
        """A disc around that point."""
        from matplotlib import patches
        self.axes.add_patch(patches.Circle((x, y), radius, fc=color, ec="none",
                                           clip_on=False, zorder=3))


def _towards(at, other):
    """A corner's length from one point towards another, half the way at most."""
    length = ((other[0] - at[0]) ** 2 + (other[1] - at[1]) ** 2) ** 0.5
    part = min(CORNER, length / 2) / length
    return (at[0] + part * (other[0] - at[0]), at[1] + part * (other[1] - at[1]))
