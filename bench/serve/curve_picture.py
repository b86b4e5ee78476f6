# SPDX-License-Identifier: Apache-2.0
"""A picture of milliseconds a token against length, with the KV cache and without: SVG for light and dark pages."""

import html
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 64, 150, 56, 52
SERIES = [("recomputed", "computing all again", "again"), ("cached", "with the KV cache", "cache")]
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #333 }
.title { font-size: 16px; font-weight: 600 }
.small { font-size: 11px }
.grid { stroke: #ddd } polyline { fill: none; stroke-width: 2 }
.again { stroke: #c2410c } .cache { stroke: #0369a1 }
.dot.again { fill: #c2410c } .dot.cache { fill: #0369a1 }
@media (prefers-color-scheme: dark) {
text { fill: #ddd } .grid { stroke: #444 } .again { stroke: #fb923c } .cache { stroke: #38bdf8 }
.dot.again { fill: #fb923c } .dot.cache { fill: #38bdf8 } }
</style>"""


def round_step(most, count=5):
    """A step of 1, 2 or 5 times a power of ten, so that about `count` of them reach `most`."""
    power = 10 ** math.floor(math.log10(most / count))
    return next(step * power for step in (1, 2, 5, 10) if step * power * count >= most)


def svg(points, source):
    """`points`: of {"tokens", "cached": summary, "recomputed": summary}, in ascending tokens."""
    most_x = points[-1]["tokens"]
    most_y = max(p[key]["median"] for p in points for key, _, _ in SERIES)

    def x(tokens):
        return LEFT + (WIDTH - LEFT - RIGHT) * tokens / most_x

    def y(ms):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * ms / most_y

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
           'aria-label="Milliseconds a token against tokens before it, with the KV cache and without">', STYLE,
           f'<text class="title" x="{LEFT}" y="24">What one more token costs, in milliseconds</text>']
    for value, place in ticks(most_y):
        out += [f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>',
                f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{place}</text>']
    for value, place in ticks(most_x):
        out.append(f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{place}</text>')
    out.append(f'<text x="{x(most_x / 2):.1f}" y="{HEIGHT - 14}" text-anchor="middle">tokens before it</text>')
    for key, words, style in SERIES:
        line = " ".join(f"{x(p['tokens']):.1f},{y(p[key]['median']):.1f}" for p in points)
        out.append(f'<polyline class="{style}" points="{line}"/>')
        out += [f'<circle class="dot {style}" cx="{x(p["tokens"]):.1f}" cy="{y(p[key]["median"]):.1f}" r="3"/>' for p in points]
        out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{y(points[-1][key]["median"]) + 4:.1f}">{words}</text>')
    out.append(f'<text class="small" x="{LEFT}" y="42">{html.escape(source)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def ticks(most):
    step = round_step(most)
    return [(step * i, f"{step * i:g}") for i in range(int(most / step) + 1)]
