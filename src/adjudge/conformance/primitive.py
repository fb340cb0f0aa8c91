"""A backend that has the required primitives of another one, and derives the rest."""

from __future__ import annotations

from adjudge.engine import AutodiffBackend, WrappedBackend


class PrimitiveBackend(WrappedBackend):
    """The `xp`, `owns` and `vjp` of `inner`, and its arrays and surroundings; all other operations
    are the defaults of `AutodiffBackend`: the second order by nesting, derivatives that are not
    required not supported.
    """

    way = "primitive"

    jvp = AutodiffBackend.jvp
    vjp_map = AutodiffBackend.vjp_map
    jvp_map = AutodiffBackend.jvp_map
    vmap = AutodiffBackend.vmap
    compile = AutodiffBackend.compile
    capabilities = AutodiffBackend.capabilities
    undefined_cotangents = AutodiffBackend.undefined_cotangents
    detached = AutodiffBackend.detached
    wanted = AutodiffBackend.wanted
    effective_eps = AutodiffBackend.effective_eps
    coarsened_by = AutodiffBackend.coarsened_by
    carried_eps = AutodiffBackend.carried_eps
    stack = AutodiffBackend.stack
    strided = AutodiffBackend.strided
    place = AutodiffBackend.place
    expand = AutodiffBackend.expand
    masked = AutodiffBackend.masked
    highest_precision = AutodiffBackend.highest_precision
