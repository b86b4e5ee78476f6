# SPDX-License-Identifier: Apache-2.0
"""Figures of a benchmark: medians with their spread, ratios, verdicts, and tables of them."""

import statistics

LIMIT_SHARE = 0.85  # a must also holds when this share of the machine's measured limit is reached


def summary(values):
    """Median, smallest and largest of the rounds, and the rounds themselves."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "rounds": list(values)}


def better(sides, more_is_better):
    """The name of the side with the better median; `sides` is {name: summary}, without those that have none."""
    known = {name: side["median"] for name, side in sides.items() if side}
    if not known:
        return None
    return (max if more_is_better else min)(known, key=known.get)


def ratio(ours, theirs):
    """Ours divided by theirs. Rounds were taken in turns, so each round has a ratio of its own; when one side has
    fewer rounds, the medians are divided and there is no spread."""
    if len(ours["rounds"]) == len(theirs["rounds"]):
        return summary([a / b for a, b in zip(ours["rounds"], theirs["rounds"])])
    return summary([ours["median"] / theirs["median"]])


def share_of_limit(median, limit, more_is_better):
    """1 is the limit itself: the rate that the machine allows, or the time that it needs at least."""
    return median / limit if more_is_better else limit / median


def verdict(value, bar, more_is_better, share=None):
    """Whether `value` (a ratio to a peer, or a figure) meets `bar`: "met", "met by the limit", or "missed"; "" without
    a bar or a value."""
    if bar is None or value is None:
        return ""
    if value >= bar if more_is_better else value <= bar:
        return "met"
    return "met by the limit" if share is not None and share >= LIMIT_SHARE else "missed"


def number(value):
    """Three to four digits that matter."""
    if value is None:
        return ""
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"


def spread(side):
    """`median (smallest to largest)`; a dash for a side without a figure."""
    if not side:
        return "-"
    if len(side["rounds"]) == 1:
        return number(side["median"])
    return f"{number(side['median'])} ({number(side['min'])} to {number(side['max'])})"


def table(columns, rows):
    """Lines of a Markdown table; cells are text, or numbers."""
    def line(cells):
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
    return [line(columns), line("---" for _ in columns),
            *(line(number(cell) if isinstance(cell, float) else cell for cell in row) for row in rows), ""]
