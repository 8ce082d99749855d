"""The GPUs of the runs that other tests ask about."""

from __future__ import annotations

HEALTHY_GPU, SICK_GPU = (f"GPU-{digit * 8}-aaaa-bbbb-cccc-000000000000" for digit in "12")
SICK_XID, SICK_THROTTLE = 79, 0x4 | 0x8 | 0x20
"""Fallen off the bus. Held down by the power limit, the hardware and heat."""
DCGM_PERCENT = {HEALTHY_GPU: 80, SICK_GPU: 30}
