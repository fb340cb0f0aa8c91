"""The user's function as `f: X -> Y` at a point x.

Its modules, each of which may import those above it:

- `ahead`: an executor, and the evaluations that it has begun.
- `calls`: nested arguments as flat leaves with their access paths, which of them are checked;
  the call of the user's function with such leaves, counted, and the structure of its outputs.
- `space`: real inner-product spaces of leaves and their coordinates.
- `charts`: parametrisations of constraint sets (symmetric matrices, spheres, simplices).
- `domain`: the boxes and sets within which f may be evaluated.
- `constraints`: inputs that live on such a set, and f as a function of their coordinates.
- `probes`: random and unit tangents and cotangents, tangents that compare several columns together,
  and the streams of all random draws.
- `problem`: f at x, its outputs there, and reverse mode and forward mode of the engine, counted.
- `captured`: what f closes over as further inputs.
- `composition`: the vjp and the jvp of f as problems of their own.

Invariant: the point x is held as real coordinates on the host, and every evaluation gets fresh
arrays made from them, so that no function can spoil its inputs. Every evaluation, vjp and jvp
is counted.
"""

from adjudge.problem.ahead import Ahead, through
from adjudge.problem.calls import (
    DIFFERENTIATING,
    PURPOSES_AT_X,
    Arguments,
    Counts,
    Holder,
    Move,
    Path,
    Purpose,
    Tree,
    UserCalls,
    flatten,
    placed_call,
    read_arguments,
)
from adjudge.problem.captured import (
    HeldState,
    captured_by,
    captured_inputs,
    contents_reached_by,
    generator_of,
    graded_numbers,
    held_by,
    names_of,
    with_captured,
)
from adjudge.problem.charts import SETS
from adjudge.problem.composition import (
    COTANGENT,
    attached_alone,
    composed,
    gradient_problem,
    over_reverse,
    tangent_problem,
)
from adjudge.problem.constraints import Directions, lies_in, set_around, tangent_to
from adjudge.problem.domain import (
    ABOVE_ZERO,
    DOMAINS,
    INTERVALS,
    Bounds,
    Domain,
    Domains,
    bounds_of,
    contains,
    domains_of,
    read_bounds,
    read_domain,
)
from adjudge.problem.probes import (
    Probes,
    Stream,
    Tangent,
    colored_tangents,
    fresh_seed,
    generator,
    halves,
    random_cotangent,
    random_entries,
    shared_tangents,
)
from adjudge.problem.problem import (
    Base,
    Forward,
    Problem,
    Reverse,
    at_once,
    base_of,
    evaluate,
    first_order,
    leave_out,
    observe,
    outputs_at,
    require_outputs,
    undetectable_slope,
)
from adjudge.problem.space import DOUBLE, Leaf, Space, largest

__all__ = [
    "ABOVE_ZERO",
    "COTANGENT",
    "DIFFERENTIATING",
    "DOMAINS",
    "DOUBLE",
    "INTERVALS",
    "PURPOSES_AT_X",
    "SETS",
    "Ahead",
    "Arguments",
    "Base",
    "Bounds",
    "Counts",
    "Directions",
    "Domain",
    "Domains",
    "Forward",
    "HeldState",
    "Holder",
    "Leaf",
    "Move",
    "Path",
    "Probes",
    "Problem",
    "Purpose",
    "Reverse",
    "Space",
    "Stream",
    "Tangent",
    "Tree",
    "UserCalls",
    "at_once",
    "attached_alone",
    "base_of",
    "bounds_of",
    "captured_by",
    "captured_inputs",
    "colored_tangents",
    "composed",
    "contains",
    "contents_reached_by",
    "domains_of",
    "evaluate",
    "first_order",
    "flatten",
    "fresh_seed",
    "generator",
    "generator_of",
    "graded_numbers",
    "gradient_problem",
    "halves",
    "held_by",
    "largest",
    "leave_out",
    "lies_in",
    "names_of",
    "observe",
    "outputs_at",
    "over_reverse",
    "placed_call",
    "random_cotangent",
    "random_entries",
    "read_arguments",
    "read_bounds",
    "read_domain",
    "require_outputs",
    "set_around",
    "shared_tangents",
    "tangent_problem",
    "tangent_to",
    "through",
    "undetectable_slope",
    "with_captured",
]
