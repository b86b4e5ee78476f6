# SPDX-License-Identifier: Apache-2.0
"""Whether resident memory grew: a figure that neither a burst nor a quiet minute decides.

Every tide ends in an ebb: no request, no live block. Memory is read there, and only there, so that like is compared
with like. The first tides are warm-up: buffers reach their largest size, the pool is touched once. Of the ebbs behind
them, the median of the first third is the baseline and that of the last third the end.
"""

import math
import statistics

GROWTH_PERCENT_MAX = 2.0
WARM_UP_SHARE = 0.2  # of the tides, and at least
WARM_UP_TIDES_MIN = 2
JUDGED_TIDES_MIN = 3


def warm_up_tides(count):
    return min(max(WARM_UP_TIDES_MIN, math.ceil(count * WARM_UP_SHARE)), max(count - JUDGED_TIDES_MIN, 0))


def growth(rss_kib):
    """`rss_kib`: one value an ebb. Gives baseline, end and growth, or None when there are too few to judge."""
    warm = warm_up_tides(len(rss_kib))
    judged = rss_kib[warm:]
    if len(judged) < JUDGED_TIDES_MIN:
        return None
    third = len(judged) // 3
    baseline, end = statistics.median(judged[:third]), statistics.median(judged[-third:])
    return {"warm_up_tides": warm, "baseline_kib": baseline, "end_kib": end,
            "growth_percent": round((end / baseline - 1) * 100, 3)}
