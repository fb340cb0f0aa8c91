"""The verbs: `gradcheck` and `gradgradcheck` raise, `examine` returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Unpack

from adjudge.check import (
    Matrix,
    Mode,
    Options,
    Settings,
    Way,
    at_points,
    composition,
    double_precision_of,
    note_of,
    noticed,
    problem_of,
    provenance_of,
    refusal,
    report_of,
    settings_of,
    shares,
    surroundings,
    ways_of,
)
from adjudge.engine import AutodiffBackend
from adjudge.estimate import Reference
from adjudge.listeners import tell
from adjudge.problem import Bounds, Directions, Domains, Path, Problem, over_reverse
from adjudge.report import GradcheckError, Report, asked_for

Function = Callable[..., Any]


def gradcheck(
    f: Function,
    inputs: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    wrt: Path | Sequence[Path] | None = None,
    eps: float | None = None,
    bounds: Bounds = None,
    atol: float | None = None,
    rtol: float | None = None,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = True,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool | None = None,
    masked: bool | None = None,
    mode: Mode = "auto",
    seed: int | None = None,
    equal_nan: bool = False,
    modes: Sequence[str] | None = None,
    max_evaluations: int | None = None,
    in_double: bool | None = None,
    highest_precision: bool = False,
    directions: Directions = None,
    points: Literal["special"] | Sequence[Any] | Mapping[str, Any] | None = None,
    domain: Domains = None,
    reference: Reference | None = None,
    device: str | None = None,
    backend: str | AutodiffBackend | None = None,
) -> Report:
    """Whether the engine's first derivatives of `f` at `inputs` are the derivatives of `f`.

    Args:
        f: Called as `f(*inputs, **kwargs)`; returns a pytree with floating or complex arrays.
            Or a `ByHand`.
        inputs: A tuple or list of positional arguments (pytrees), or one argument. The arrays
            decide the engine. They are never written to or passed on: `f` sees copies.
        kwargs: Keyword arguments, checked like the positional ones.
        wrt: Which inputs to check: the index of a positional argument, an accessor path like
            `"inputs[0]['w']"` or `"kwargs['b']"`, or several of them. Default: all floating and
            complex arrays; where the engine marks arrays (`requires_grad`) and any is, those.
        eps: Absolute step of the differences. `None`: relative to the scale of each input.
        bounds: `(low, high)`, numbers or arrays, that no evaluation leaves in any checked input;
            or a mapping from paths as for `wrt` to such pairs. Differences are one-sided where x
            is too close to a bound, or on it.
        atol, rtol: Allowed `|automatic - reference| <= atol + rtol |reference|`. `None`: from
            the dtype and the error bar of the differences.
        raise_exception: `False` returns a falsy report instead of raising `GradcheckError`.
            Every other exception comes through.
        nondet_tol: Largest absolute difference between two evaluations, or two vjps, at one
            point.
        check_undefined_grad: Undefined (`None`) cotangents and tangents act as zeros.
        check_grad_dtypes: Tangents are complex exactly where their outputs are. (The dtype of a
            gradient is always compared with its input's.)
        check_batched_grad, check_batched_forward_grad: The vmapped vjp or jvp equals the loop.
        check_forward_ad, check_backward_ad: Which modes to check; at least one.
        fast_mode: `True` is `mode="projected"`, `False` is `mode="full"`.
        masked: Sparse inputs: `True` checks the stored values only.
        mode: `"full"` compares every entry of the Jacobian, `"projected"` one random signed
            projection a pair of leaves and, where that fails or is suspicious, the entries it is
            traced to. `"auto"` is projected, but for problems of a few numbers.
        seed: Of the random tangents and cotangents. `None`: a fresh one, stated in the report.
        equal_nan: Let agreeing NaNs and infinities pass.
        modes: Compositions of reverse (`R`) and forward mode (`F`), outermost first, such as
            `["R", "F", "RR", "FR"]`, instead of `check_backward_ad` and `check_forward_ad`.
        max_evaluations: A budget of work, of which an evaluation, a vjp and a jvp are one unit
            each (a jvp evaluates `f` as well). When it is spent nothing more is begun, and what
            was left open is a finding, `UNFINISHED`: INCONCLUSIVE, if nothing failed before. A
            ladder of steps that has begun is climbed to its end. `None`: no limit.
        in_double: Judge the formula in float64 where an input is narrower, and the narrow
            derivative against that one. `None`: where the function runs in float64, and none of
            `eps`, `atol`, `rtol`, `nondet_tol` and `max_evaluations` is given. `False`: never.
            `True`: where it does not, the verdict is INCONCLUSIVE at best.
        highest_precision: Evaluate without TF32, autocast and other arithmetic that is narrower
            than the dtype, instead of allowing for it.
        directions: Checks along a set that inputs live on, and nothing outside of it: no
            evaluation leaves the set, and gradients are compared along its tangents. `"symmetric"`
            (Hermitian where complex), `"positive definite"`, `"simplex"`, `"sphere"`,
            `"orthogonal"`, `"sorted"`, `"positive"`, or a callable `chart(z) -> x` with
            `chart(x) = x`, for all checked inputs; or a mapping from paths as for `wrt` to these.
        points: Check at further points as well, each with these same options and budget:
            `"special"` for `special_points`, a list of inputs, or a mapping from names to inputs.
            The report has one report a point in `.points`. A point at which `f` raises, is not
            finite or not smooth is listed as such and decides nothing.
        domain: Where `f` is defined, for the special points: see `special_points`. Steps keep
            within its intervals where there are no `bounds`.
        reference: What to compare with in place of differences of `f`, where `f` cannot show its
            derivative: `adjudge.reference.mpmath(g)`, `.twin(g)`, `.derivative(jvp=...)`.
        device: Name of the device to check on, as `adjudge backends` lists it: the function sees
            copies of all arrays there. `None`: every array on the device that it is on.
        backend: Name or instance of the engine, instead of asking the arrays.

    Returns:
        The `Report`, truthy only if everything asked for was compared and agreed.

    Raises:
        GradcheckError: The verdict is FAIL or INCONCLUSIVE; carries the report.
        InputError: Nothing to check, or arguments that make no sense.
        BackendError: Arrays of no, or of several, frameworks.
        UnstableOutputError: Outputs change shape or dtype near x.
    """
    __tracebackhide__ = True  # a test's traceback ends at the test's own line
    options: Options = {
        "kwargs": kwargs, "wrt": wrt, "eps": eps, "bounds": bounds, "atol": atol, "rtol": rtol,
        "nondet_tol": nondet_tol, "check_undefined_grad": check_undefined_grad,
        "check_grad_dtypes": check_grad_dtypes, "check_batched_grad": check_batched_grad,
        "check_batched_forward_grad": check_batched_forward_grad,
        "check_forward_ad": check_forward_ad, "check_backward_ad": check_backward_ad,
        "fast_mode": fast_mode, "masked": masked, "mode": mode, "seed": seed,
        "equal_nan": equal_nan, "max_evaluations": max_evaluations, "in_double": in_double,
        "highest_precision": highest_precision, "directions": directions, "points": points,
        "domain": domain, "reference": reference, "device": device, "backend": backend,
    }  # fmt: skip
    return _raised(examine(f, inputs, modes=modes, **options), raise_exception)


def examine(
    f: Function,
    inputs: Any,
    *,
    order: int | None = None,
    modes: Sequence[str] | None = None,
    compile: bool | None = None,
    **options: Unpack[Options],
) -> Report:
    """`gradcheck` that never raises for a wrong derivative: the report says it.

    Args:
        f, inputs: As for `gradcheck`.
        order: 1, 2 or 3: all compositions of reverse (`R`) and forward mode (`F`) up to this
            order, in every way in which the engine takes derivatives (of PyTorch, eager and
            `torch.func`; of JAX, eager and `jit`): `report.modes` and `report.ways`. What a
            derivative raises is RAISED, what the engine lacks UNSUPPORTED; neither is a PASS.
        modes: Some of them, outermost first: `["R", "FR"]`. `None`: all up to `order`; without an
            order `R` and `F` as `check_backward_ad` and `check_forward_ad` say.
        compile: Whether to check the compiled function, too. `None`: with an order, where the
            engine is mostly used like that (JAX).
        options: The keywords of `gradcheck`, but for `raise_exception` and `modes`.
    """
    at_one = partial(_at_one, f, order=order, modes=modes, compile=compile)
    if options.get("points") is not None or options.get("domain") is not None:
        return tell(at_points(f, at_one, inputs, options))
    return tell(at_one(inputs, **options))


def _at_one(
    f: Function,
    inputs: Any,
    *,
    order: int | None,
    modes: Sequence[str] | None,
    compile: bool | None,
    **options: Unpack[Options],
) -> Report:
    """`examine` at one point."""
    words = asked_for(order, modes)
    settings = replace(settings_of(options), thorough=words is not None)
    problem = problem_of(f, inputs, options)
    matrix = Matrix(
        problem, settings, words or _flagged(settings), double_precision_of(problem, settings),
        guards=words is not None,
    )  # fmt: skip
    with surroundings(problem, highest=settings.highest_precision) as seen:
        matrix.fill(_ways(f, inputs, problem, order, compile, options))
    outcomes = matrix.outcomes
    outcomes[0].findings += noticed(problem, seen, outcomes)
    outcomes[-1].findings += refusal(matrix.double, settings)
    rows = matrix.rows if words is not None else {}
    return report_of(f, problem, settings, outcomes, note_of(problem, matrix.double), rows)


def _flagged(settings: Settings) -> list[str]:
    """The first-order modes that are switched on."""
    return ["R"] * settings.backward + ["F"] * settings.forward


def _ways(
    f: Function,
    inputs: Any,
    problem: Problem,
    order: int | None,
    compile: bool | None,
    options: Options,
) -> list[Way]:
    """Beside the engine's usual way: all the others where an order is given, and compiled."""
    wanted = compile or (compile is None and order is not None and problem.backend.usually_compiled)
    ways = ways_of(problem) if order is not None else []
    if not wanted:
        return ways
    compiled = problem_of(problem.backend.compile(f), inputs, options, problem.counts)
    return [*ways, Way(problem.backend.compiled_way, compiled, bool(compile))]


def gradgradcheck(
    f: Function,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    wrt: Path | Sequence[Path] | None = None,
    eps: float | None = None,
    bounds: Bounds = None,
    atol: float | None = None,
    rtol: float | None = None,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = True,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool | None = None,
    masked: bool | None = None,
    mode: Mode = "auto",
    seed: int | None = None,
    equal_nan: bool = False,
    max_evaluations: int | None = None,
    in_double: bool | None = None,
    highest_precision: bool = False,
    directions: Directions = None,
    reference: Reference | None = None,
    device: str | None = None,
    backend: str | AutodiffBackend | None = None,
) -> Report:
    """`gradcheck` of `(x, w) -> J*(x) w`, and of `J*` itself by the same evaluations.

    Arguments as for `gradcheck`, and:

    Args:
        grad_outputs: The cotangents `w`, one array per differentiable output. `None`: random
            signed ones, drawn independently of all tangents.
        gen_non_contig_grad_outputs: Random cotangents are not contiguous, where the engine has
            strides.
        check_fwd_over_rev, check_rev_over_rev: Modes `FR` and `RR`; at least one.

    In the report, `R` is the first derivative, `RR` and `FR` the second; entries
    `d grad(inputs[0]) / d inputs[0]` belong to the term in x, `d grad(inputs[0]) /
    d grad_outputs[0]` to the term in w.

    Raises: As `gradcheck`.
    """
    __tracebackhide__ = True  # a test's traceback ends at the test's own line
    options: Options = {
        "kwargs": kwargs, "wrt": wrt, "eps": eps, "bounds": bounds, "atol": atol, "rtol": rtol,
        "nondet_tol": nondet_tol, "check_undefined_grad": check_undefined_grad,
        "check_grad_dtypes": check_grad_dtypes, "check_batched_grad": check_batched_grad,
        "check_forward_ad": check_fwd_over_rev, "check_backward_ad": check_rev_over_rev,
        "fast_mode": fast_mode, "masked": masked, "mode": mode, "seed": seed,
        "equal_nan": equal_nan, "max_evaluations": max_evaluations, "in_double": in_double,
        "highest_precision": highest_precision, "directions": directions, "reference": reference,
        "device": device, "backend": backend,
    }  # fmt: skip
    settings = settings_of(options, second=True)
    problem = problem_of(f, inputs, options)
    double = double_precision_of(problem, settings)
    with surroundings(problem, highest=settings.highest_precision) as seen:
        next(shares(problem, [("R", settings)]))
        outcome = composition(
            problem,
            "R",
            settings,
            str(provenance_of(problem, settings, False)),
            double,
            partial(
                over_reverse,
                given=grad_outputs,
                seed=settings.seed,
                strided=gen_non_contig_grad_outputs,
            ),
            alone=True,
        ).outcome
    outcome.findings += noticed(problem, seen, [outcome])
    outcome.findings += refusal(double, settings)
    report = tell(report_of(f, problem, settings, [outcome], note_of(problem, double)))
    return _raised(report, raise_exception)


def _raised(report: Report, raise_exception: bool) -> Report:
    __tracebackhide__ = True
    if not report and raise_exception:
        raise GradcheckError(report)
    return report
