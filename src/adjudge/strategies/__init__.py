"""This package draws inputs with Hypothesis, which searches them for a point where a derivative is
wrong.

It holds strategies for arrays and for the inputs of a function, drawn in a domain so that they
shrink to few, small and round numbers, and the check of the inputs drawn. It needs the extra
`hypothesis`.

A point that decides nothing (f raises there, or is not smooth) is never counted as a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from adjudge.errors import Catching, installed_by

with installed_by("pip install 'adjudge[hypothesis]'"):
    import hypothesis
    from hypothesis import strategies as st

from adjudge.check import Options, known_options, silence
from adjudge.engine import AutodiffBackend, HostArray, backend_given, placed_tree
from adjudge.findings import Reason, Silence, Verdict
from adjudge.problem import SETS, Domain, Path
from adjudge.report import GradcheckError, Report, reproduction, why_silent
from adjudge.strategies.drawing import Strategy, drawn_array, require_domain
from adjudge.verbs import examine

__all__ = ["DType", "Shape", "Spec", "arrays", "inputs", "judge"]

Shape: TypeAlias = Sequence[int | str] | Strategy
"""The sizes of axes, or names of sizes to be drawn, such as `(3, "n", "n")`; or a strategy of
tuples."""
DType: TypeAlias = str | Strategy


@dataclass(frozen=True)
class Spec:
    """An input to be drawn; `arrays` describes the fields. Sizes of the same name are the same in
    all inputs drawn together.
    """

    shape: Shape
    dtype: DType = "float64"
    domain: Domain = None
    special: bool = True


def arrays(
    shape: Shape,
    dtype: DType = "float64",
    domain: Domain = None,
    special: bool = True,
    *,
    sizes: Strategy | None = None,
) -> Strategy:
    """Returns a strategy for NumPy arrays of finite numbers in a domain, which shrink to few, small
    and round numbers.

    Args:
        shape: A tuple of sizes and of names of sizes, such as `("n", "n")`, or a strategy of
            tuples.
        dtype: The name of a floating, complex or integer dtype, or a strategy of names;
            `"bfloat16"` where `ml_dtypes` is installed.
        domain: `None` (everywhere), `"positive"`, `"nonnegative"`, `"unit"`, a pair
            `(low, high)`; `"symmetric"`, `"positive definite"`, `"orthogonal"` (the last two axes),
            `"simplex"`, `"sphere"`, `"sorted"` (the last axis); `"away from ties"` (entries a
            quarter apart at least); or a function from a NumPy array to whether it belongs.
        special: Half of the arrays are points that random ones miss, of the kinds of
            `special_points`: zeros, ties, integers, the ends of the domain and of the dtype.
        sizes: The strategy for the sizes of named axes. They are from 1 to 4 unless it is given.

    Raises:
        InputError: The domain has no meaning, or arrays of this shape or dtype cannot have it.
    """
    require_domain(domain)
    return _drawn(Spec(shape, dtype, domain, special), sizes)


def inputs(*specs: Any, sizes: Strategy | None = None) -> Strategy:
    """Returns a strategy for tuples of arguments. Each argument is given as a `Spec`, a strategy, a
    dict, tuple or list of such, or a constant.

    Sizes of axes that have the same name are the same. With special points, inputs that are alike
    are sometimes equal.

    Raises:
        InputError: A domain has no meaning.
    """
    for spec in _specs(specs):
        require_domain(spec.domain)
    return _drawn(specs, sizes)


def _specs(tree: Any) -> list[Spec]:
    if isinstance(tree, Spec):
        return [tree]
    if isinstance(tree, dict | tuple | list):
        nodes = tree.values() if isinstance(tree, dict) else tree
        return [spec for node in nodes for spec in _specs(node)]
    return []


@st.composite
def _drawn(draw: st.DrawFn, tree: Any, sizes: Strategy | None) -> Any:
    specs = _specs(tree)
    named = [one for spec in specs if isinstance(spec.shape, Sequence) for one in spec.shape]
    chosen = {
        name: draw(st.integers(1, 4) if sizes is None else sizes)
        for name in dict.fromkeys(name for name in named if isinstance(name, str))
    }
    equal = len(specs) > 1 and all(spec.special for spec in specs)
    equal = equal and draw(st.integers(0, 7)) == 7
    before: dict[Any, HostArray] = {}

    def drawn(node: Any) -> Any:
        if isinstance(node, Spec):
            array = _array(draw, node, chosen)
            key = array.shape, array.dtype, str(node.domain)
            return before.setdefault(key, array).copy() if equal else array
        if isinstance(node, st.SearchStrategy):
            return draw(node)
        if isinstance(node, dict):
            return {key: drawn(child) for key, child in node.items()}
        if isinstance(node, tuple | list):
            return type(node)([drawn(child) for child in node])
        return node

    return drawn(tree)


def _array(draw: st.DrawFn, spec: Spec, sizes: Mapping[str, int]) -> HostArray:
    given = spec.shape
    if isinstance(given, Sequence):
        shape = tuple(sizes[one] if isinstance(one, str) else one for one in given)
    else:
        shape = tuple(draw(given))
    dtype = spec.dtype if isinstance(spec.dtype, str) else draw(spec.dtype)
    return drawn_array(draw, shape, dtype, spec.domain, special=spec.special)


# ---------------------------------------------------------------- the check


def judge(
    f: Callable[..., Any],
    inputs: Any,
    backend: str | AutodiffBackend | None = None,
    *,
    strict: bool = False,
    device: str | None = None,
    domain: Domain | Mapping[Path, Domain] = None,
    seed: int = 0,
    **options: Any,
) -> Report:
    """Runs `examine` at a drawn point, for use inside of `@given`, and returns its report.

    A point that decides nothing (f is not finite there, has a kink or a jump, or the differences
    cannot tell) is rejected, as by `hypothesis.assume`, with an event that says why. A test in
    which no point decides anything therefore does not pass. Outside of `@given` the report of
    such a point is returned.

    Args:
        f: This is as for `gradcheck`.
        inputs: Arguments made of host arrays, as `inputs` and `arrays` draw them; or one array.
        backend: The engine that they are placed on, exactly. With `None` they stay as they are.
        strict: Whether a point at which differences cannot tell is an error, too, unless f itself
            explains it.
        device: The device of the engine on which they are placed.
        domain: The domain of the inputs, or domains by path as for `wrt`. The check keeps within
            it. Names of sets act as `directions=`, intervals as `bounds=`.
        seed: The seed of the probes. It is fixed, so that the same point has the same verdict, as
            Hypothesis needs.
        options: These are described at `adjudge.Options`.

    Raises:
        GradcheckError: The verdict is FAIL, or, with `strict`, the differences cannot tell. Its
            notes hold the script of `reproduction`.
    """
    __tracebackhide__ = True
    engine = None if backend is None else backend_given(backend)
    given = {**_within(domain), **options, "backend": engine, "seed": seed}
    chosen = known_options(judge, given, Options)
    point = inputs if engine is None else placed_tree(engine, inputs, device)

    def script() -> str:
        """The script that repeats the check, between two lines of dashes."""
        lines = reproduction(f, inputs, **given)
        return f"---- to see it again ----\n{lines}-------------------------"

    # NumPy's warnings are switched off, since the check judges the numbers that overflow makes.
    with Catching() as caught, np.errstate(all="ignore"):
        report = examine(f, point, **chosen)
    if caught.error is not None:
        caught.error.add_note(script())
        raise caught.error
    if report:
        return report
    why: tuple[Silence, ...] = ()
    if chosen.get("points") is None:
        why = silence(f, point, report, chosen)
    failed = report.verdict is Verdict.FAIL and not why
    if failed:
        # Among hundreds of points some probe may make a right derivative fail. A failure is
        # confirmed with other probes, along which a wrong derivative fails as well. The rule is
        # ours.
        other: Options = {**chosen, "seed": seed + 1, "blame": False}
        with np.errstate(all="ignore"):
            again = examine(f, point, **other)
        confirmed = again.verdict is Verdict.FAIL
        why = () if confirmed else (Silence(Reason.UNCONFIRMED),)
    if not why and (strict or failed):
        failure = GradcheckError(report)
        failure.add_note(script())
        raise failure
    if hypothesis.currently_in_test_context():
        undecided = [x for x in report.ranked if x.verdict is Verdict.INCONCLUSIVE]
        status = undecided[0].status if undecided else report.verdict
        hypothesis.event(f"adjudge: decides nothing ({why_silent(why) or status})")
        hypothesis.reject()
    return replace(report, verdict=Verdict.INCONCLUSIVE, silence=why)


def _within(domain: Domain | Mapping[Path, Domain]) -> dict[str, Any]:
    """Returns the options that make a check keep within a domain, as far as there are any.

    Raises `InputError` for a domain without meaning.
    """
    by_path = domain if isinstance(domain, Mapping) else {"": domain}
    sets, intervals = {}, {}
    for path, one in by_path.items():
        within = require_domain(one)
        if isinstance(within, tuple):
            intervals[path] = within
        elif isinstance(within, str) and within in SETS:
            sets[path] = within
    found: dict[str, Any] = {"directions": sets} if sets else {}
    found |= {"bounds": intervals} if intervals else {}
    if isinstance(domain, Mapping):
        return found
    return {name: paths[""] for name, paths in found.items()}
