# SPDX-License-Identifier: Apache-2.0
"""Fixtures of modules whose tests take leases: import `server` and `nothing_leased`, and what is leased there takes no
other test's share."""

import pytest

from conftest import serving


@pytest.fixture(scope="module")
def server():
    """The module's own, in the place of the one that others share."""
    with serving("--kv-memory", "512MiB", "--alias", "*") as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_leased(server):
    server.ok("/v1/cache/clear", {})
