"""MLX for adjudge, on the CPU."""

from adjudge.errors import installed_by

with installed_by("pip install 'adjudge[mlx]'"):
    from adjudge_mlx.backend import MlxBackend

__all__ = ["MlxBackend"]
