# SPDX-License-Identifier: Apache-2.0
"""A line chart as SVG, both axes logarithmic or both linear, readable on a light and on a dark page."""

import html
import math

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 46, 74
LABELLED_MAX = 6  # points of a series
STYLE = """
  .ink { fill: #1f2328; } .soft { fill: #59636e; } .grid { stroke: #d1d9e0; }
  .s0 { stroke: #b35900; } .f0 { fill: #b35900; } .s1 { stroke: #0969da; } .f1 { fill: #0969da; }
  text { font: 13px system-ui, sans-serif; } .title { font-size: 16px; font-weight: 600; } .note { font-size: 10px; }
  @media (prefers-color-scheme: dark) {
    .ink { fill: #f0f6fc; } .soft { fill: #9198a1; } .grid { stroke: #3d444d; }
    .s0 { stroke: #f0883e; } .f0 { fill: #f0883e; } .s1 { stroke: #58a6ff; } .f1 { fill: #58a6ff; }
  }
"""


def amount(value):
    """1,200 or 24 or 0.5: as few digits as tell it."""
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"


def decades(low, high):
    """Powers of ten from at or below `low` to at or above `high`."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0 ** e for e in range(first, max(last, first + 1) + 1)]


def round_steps(most, count=5):
    """From 0 up to `most`, in about `count` steps of 1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(most / count))
    step = next(step * power for step in (1, 2, 5, 10) if step * power * count >= most)
    return [step * i for i in range(int(most / step) + 1)]


def log_share(value, low, high):
    """How far `value` is from `low` to `high`; in the middle when these are one."""
    return 0.5 if low == high else math.log(value / low) / math.log(high / low)


def line_picture(title, x_label, y_label, series, note, linear=False):
    """`series`: {name: [(x, y), ..]}, at most two, all numbers above 0. Few points have their value beside them."""
    if not 1 <= len(series) <= 2 or any(x <= 0 or y <= 0 for points in series.values() for x, y in points):
        raise ValueError("one or two series of numbers above 0")
    xs = sorted({x for points in series.values() for x, _ in points})
    ys = [y for points in series.values() for _, y in points]
    x_marks, y_marks = (round_steps(xs[-1]), round_steps(max(ys))) if linear else (xs, decades(min(ys), max(ys)))

    def across(x):
        share = x / xs[-1] if linear else log_share(x, xs[0], xs[-1])
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def up(y):
        share = y / max(ys) if linear else log_share(y, y_marks[0], y_marks[-1])
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def text(x, y, words, kind="soft", anchor="start"):
        return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{html.escape(words)}</text>'

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
           f'aria-label="{html.escape(title)}">', f"<style>{STYLE}</style>", text(LEFT, 24, title, "ink title")]
    for mark in y_marks:
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(mark):.1f}" y2="{up(mark):.1f}" class="grid"/>')
        out.append(text(LEFT - 8, up(mark) + 4, amount(mark), anchor="end"))
    out.append(text(LEFT - 8, TOP - 10, y_label, anchor="end"))
    for x in x_marks:
        out.append(text(across(x), HEIGHT - BOTTOM + 20, amount(x), anchor="middle"))
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 40, x_label, anchor="middle"))
    for i, (name, points) in enumerate(series.items()):
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" fill="none" stroke-width="2.5" class="s{i}"/>')
        for x, y in points:
            out.append(f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3.5" class="f{i}"/>')
            if len(xs) <= LABELLED_MAX:
                out.append(text(across(x), up(y) - 9, amount(y), "ink", "middle"))
        x, y = points[-1]
        out.append(text(across(x) + 14, up(y) + 4, name, f"f{i}"))
    out += [text(LEFT, HEIGHT - 10, note, "soft note"), "</svg>", ""]
    return "\n".join(out)
