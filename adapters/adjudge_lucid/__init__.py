"""Lucid for adjudge: the backend, and doors with the signatures of `lucid.autograd`.

Import it before Lucid: older Pythons than 3.14 cannot import Lucid 2 by themselves.
"""

from typing import Any

from adjudge.errors import installed_by
from adjudge_lucid.importing import defer_annotations

__all__ = ["LucidBackend", "gradcheck", "gradgradcheck"]

defer_annotations()


def __getattr__(name: str) -> Any:
    # the backend imports Lucid, and the doors stand on top of the library: loaded when asked for
    if name == "LucidBackend":
        with installed_by("pip install 'adjudge[lucid]'"):
            from adjudge_lucid.backend import LucidBackend

        return LucidBackend
    if name in ("gradcheck", "gradgradcheck"):
        from adjudge_lucid import door

        return getattr(door, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
