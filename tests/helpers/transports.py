# SPDX-License-Identifier: Apache-2.0
"""Ways of tensors that this machine has; NIXL needs no GPU."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

HAS_NIXL = find_spec("nixl") is not None
needs_nixl = pytest.mark.skipif(not HAS_NIXL, reason="needs NIXL: pip install nixl")
TRANSPORTS = ["object_store", pytest.param("nixl", marks=needs_nixl)]
# for tests of what does not depend on the way
ANY_TRANSPORT: Any = "nixl" if HAS_NIXL else "object_store"
