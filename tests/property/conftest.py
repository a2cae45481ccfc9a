"""How hard the property tests try.

`DLQ_TEST_PROFILE=deep pytest` searches twenty times as long; `pytest tests/property
--hypothesis-profile=deep` does the same. Deadlines are off: the machines that run this are shared.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "quick", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("deep", settings.get_profile("quick"), max_examples=2000)
settings.load_profile(os.environ.get("DLQ_TEST_PROFILE", "quick"))
