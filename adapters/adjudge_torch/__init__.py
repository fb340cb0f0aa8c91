"""PyTorch for adjudge: the backend, and doors with the signatures of `torch.autograd`."""

from typing import Any

from adjudge.errors import installed_by

with installed_by("pip install 'adjudge[torch]'"):
    from adjudge_torch.backend import TorchBackend as TorchBackend
    from adjudge_torch.module import functional as functional

__all__ = ["TorchBackend", "functional", "gradcheck", "gradgradcheck"]


def __getattr__(name: str) -> Any:
    # the doors stand on top of the library, the backend below it: loaded when asked for
    if name in ("gradcheck", "gradgradcheck", "GradcheckError"):
        from adjudge_torch import door

        return getattr(door, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
