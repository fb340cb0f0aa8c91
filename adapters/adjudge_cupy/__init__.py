"""CuPy for adjudge, and engines whose derivatives are supplied: layers, operators, Warp tapes.

CuPy itself is imported by `CupyBackend` only; everything else runs on NumPy arrays as well.
"""

from __future__ import annotations

from typing import Any

from adjudge.errors import installed_by
from adjudge_cupy.engines import layer as layer
from adjudge_cupy.engines import linear as linear
from adjudge_cupy.engines import model as model
from adjudge_cupy.engines import warp_kernel as warp_kernel


def __getattr__(name: str) -> Any:
    """`CupyBackend`, which imports CuPy."""
    if name != "CupyBackend":
        raise AttributeError(f"module 'adjudge_cupy' has no attribute {name!r}")
    with installed_by("pip install 'adjudge[cupy]'"):
        from adjudge_cupy.backend import CupyBackend

    return CupyBackend
