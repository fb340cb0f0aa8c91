"""The verbs: `gradcheck` and `gradgradcheck` raise, `examine` returns."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from adjudge._version import __version__
from adjudge.automatic import Reverse, base_of, observe
from adjudge.backend import Array, Arrays, AutodiffBackend, everything
from adjudge.compare import Entry
from adjudge.errors import FlagError, InputError, NotSupportedError
from adjudge.findings import Finding, Status, Verdict, worst
from adjudge.judge import Judgement, Settings, judge
from adjudge.numeric import Base
from adjudge.probes import fresh_seed, random_cotangent
from adjudge.problem import Path, Problem, first_order, gradient_problem
from adjudge.report import GradcheckError, Provenance, Report

Mode = Literal["auto", "full", "projected"]
Function = Callable[..., Any]


def gradcheck(
    f: Function,
    inputs: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    wrt: Path | Sequence[Path] | None = None,
    eps: float | None = None,
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
            projection a pair of leaves, `"auto"` chooses by cost.
        seed: Of the random tangents and cotangents. `None`: a fresh one, stated in the report.
        equal_nan: Let agreeing NaNs and infinities pass.
        backend: Name or instance of the engine, instead of asking the arrays.

    Returns:
        The `Report`, truthy only if everything asked for was compared and agreed.

    Raises:
        GradcheckError: The verdict is FAIL or INCONCLUSIVE; carries the report.
        InputError: Nothing to check, or arguments that make no sense.
        BackendError: Arrays of no, or of several, frameworks.
        UnstableOutputError: Outputs change shape or dtype near x.
    """
    report = examine(
        f, inputs, kwargs=kwargs, wrt=wrt, eps=eps, atol=atol, rtol=rtol, nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_batched_forward_grad=check_batched_forward_grad,
        check_forward_ad=check_forward_ad, check_backward_ad=check_backward_ad,
        fast_mode=fast_mode, masked=masked, mode=mode, seed=seed, equal_nan=equal_nan,
        backend=backend,
    )  # fmt: skip
    return _raised(report, raise_exception)


def examine(
    f: Function,
    inputs: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    wrt: Path | Sequence[Path] | None = None,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
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
    backend: str | AutodiffBackend | None = None,
) -> Report:
    """`gradcheck` that never raises for a wrong derivative: the report says it."""
    settings = Settings(
        seed=fresh_seed() if seed is None else seed, eps=eps, atol=atol, rtol=rtol,
        nondet_tol=nondet_tol, equal_nan=equal_nan, full=_full(mode, fast_mode),
        backward=check_backward_ad, forward=check_forward_ad, undefined=check_undefined_grad,
        grad_dtypes=check_grad_dtypes, batched=check_batched_grad,
        batched_forward=check_batched_forward_grad, masked=masked,
    )  # fmt: skip
    _validate(settings)
    problem, _ = first_order(f, inputs, kwargs, wrt, backend, masked)
    with _surroundings(problem):
        before = _random_state(problem)
        base = observe(problem)
        drawn = _random_state(problem) != before
        _require_outputs(base)
        outcome = judge(problem, base, settings, str(_provenance(problem, settings, False)))
    if drawn:
        outcome.findings.append(_DRAWS)
    return _report(f, problem, settings, outcome)


def gradgradcheck(
    f: Function,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    wrt: Path | Sequence[Path] | None = None,
    eps: float | None = None,
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
    settings = Settings(
        seed=fresh_seed() if seed is None else seed, eps=eps, atol=atol, rtol=rtol,
        nondet_tol=nondet_tol, equal_nan=equal_nan, full=_full(mode, fast_mode),
        backward=check_rev_over_rev, forward=check_fwd_over_rev, undefined=check_undefined_grad,
        grad_dtypes=check_grad_dtypes, batched=check_batched_grad, masked=masked,
    )  # fmt: skip
    _validate(settings, second=True)
    problem, _ = first_order(f, inputs, kwargs, wrt, backend, masked)
    with _surroundings(problem):
        second, outcome = _second(
            problem, settings, grad_outputs, strided=gen_non_contig_grad_outputs
        )
    return _raised(_report(f, second, settings, outcome), raise_exception)


def _second(
    problem: Problem, settings: Settings, grad_outputs: Any, *, strided: bool
) -> tuple[Problem, Judgement]:
    words = str(_provenance(problem, settings, False))
    reverse = Reverse(problem)
    base = base_of(problem, reverse.outputs)
    _require_outputs(base)
    if not any(reverse.attached):
        raise InputError(
            "no output of the function is differentiable, so there is no gradient to "
            "differentiate again",
            "return at least one output that depends on the checked inputs through the engine",
        )
    w = _cotangents(base, reverse.attached, grad_outputs, settings.seed, strided)
    try:
        second = gradient_problem(problem, reverse.attached, base.Y, w)
    except NotSupportedError as error:
        outcome = judge(problem, base, settings, words)
        finding = Finding(Status.UNSUPPORTED, "RR", "", f"RR: {error}", cause=error)
        outcome.findings.append(finding)
        outcome.modes["RR"] = finding.verdict
        return problem, outcome
    return second, judge(second, observe(second), settings, words)


def _cotangents(
    base: Base, attached: Sequence[bool], given: Any, seed: int, strided: bool
) -> Arrays:
    backend, Y = base.problem.backend, base.Y
    kept = [k for k, here in enumerate(attached) if here]
    if given is None:
        vector = random_cotangent(Y, seed + 7)
        arrays = Y.arrays(backend, vector, base.arrays)
        return tuple(
            backend.strided(arrays[k]) if strided else arrays[k] for k in kept
        )
    cotangents = tuple(given) if isinstance(given, tuple | list) else (given,)
    if len(cotangents) != len(kept):
        raise InputError(
            f"grad_outputs has {len(cotangents)} entries for {len(kept)} differentiable outputs "
            f"({', '.join(Y.leaves[k].name for k in kept)})",
            "give one cotangent per differentiable output",
        )
    return tuple(
        _fitting(base, k, number, cotangent)
        for number, (k, cotangent) in enumerate(zip(kept, cotangents, strict=True))
    )


def _fitting(base: Base, k: int, number: int, cotangent: Any) -> Array:
    leaf, backend = base.Y.leaves[k], base.problem.backend
    if cotangent is None:
        return backend.from_host(leaf.host(np.zeros(leaf.size)), base.arrays[k])
    if not backend.owns(cotangent):
        raise InputError(
            f"grad_outputs[{number}] is a {type(cotangent).__name__}, not an array of "
            f"{backend.name}",
            f"give an array like {leaf.name}: {leaf.info.dtype} of shape {leaf.info.shape}",
        )
    info = backend.info(cotangent)
    if info.shape != leaf.info.shape:
        raise InputError(
            f"grad_outputs[{number}] has shape {info.shape}, {leaf.name} has {leaf.info.shape}",
            "give a cotangent of the shape of its output",
        )
    return backend.copy(cotangent)


def _raised(report: Report, raise_exception: bool) -> Report:
    __tracebackhide__ = True
    if not report and raise_exception:
        raise GradcheckError(report)
    return report


def _full(mode: str, fast_mode: bool | None) -> bool | None:
    if mode not in ("auto", "full", "projected"):
        raise InputError(f"mode={mode!r}", 'give mode="auto", "full" or "projected"')
    if fast_mode is None:
        return None if mode == "auto" else mode == "full"
    if mode != "auto" and (mode == "projected") != fast_mode:
        raise FlagError(f"fast_mode={fast_mode} contradicts mode={mode!r}", "give one of them")
    return not fast_mode


def _validate(settings: Settings, *, second: bool = False) -> None:
    for name in ("eps", "atol", "rtol", "nondet_tol"):
        value = getattr(settings, name)
        if value is None:
            continue
        if not isinstance(value, int | float) or not value >= 0 or (name == "eps" and value == 0):
            raise InputError(
                f"{name}={value!r}",
                f"give a {'positive' if name == 'eps' else 'non-negative'} number"
                + ("" if name == "nondet_tol" else ", or None for automatic"),
            )
    backward = "check_rev_over_rev" if second else "check_backward_ad"
    forward = "check_fwd_over_rev" if second else "check_forward_ad"
    if not settings.backward and not settings.forward:
        raise FlagError(
            f"{backward}=False and {forward}=False leave nothing to check",
            "switch at least one of them on",
        )
    if settings.batched and not settings.backward:
        raise FlagError(
            f"check_batched_grad=True needs {backward}=True",
            "switch the one off or the other on",
        )
    if settings.batched_forward and not settings.forward:
        raise FlagError(
            f"check_batched_forward_grad=True needs {forward}=True",
            "switch the one off or the other on",
        )


def _require_outputs(base: Base) -> None:
    if not base.Y.leaves:
        raise InputError(
            "the function returns nothing that can be differentiated: no floating or complex "
            f"array of {base.problem.backend.name}",
            "return arrays of the same framework as the inputs",
        )


@contextmanager
def _surroundings(problem: Problem) -> Iterator[None]:
    """Global state as it was afterwards, also when the user's function raises."""
    python = random.getstate()
    host = np.random.get_state()
    try:
        with everything(problem.backend.isolation(problem.x)):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(host)


def _random_state(problem: Problem) -> object:
    state = np.random.get_state()
    return (
        random.getstate(),
        tuple(part.tobytes() if isinstance(part, np.ndarray) else part for part in state),
        problem.backend.random_state(),
    )


_DRAWS = Finding(
    Status.DRAWS_RANDOM,
    "",
    "",
    "the function advances the global random state\n"
    "  its results agreed where they were compared; the state is restored after the check",
)


def _provenance(problem: Problem, settings: Settings, full: bool) -> Provenance:
    infos = [leaf.info for leaf in problem.X.leaves]
    return Provenance(
        problem.backend.name,
        problem.backend.version,
        __version__,
        np.__version__,
        "+".join(dict.fromkeys(info.device for info in infos)),
        "+".join(dict.fromkeys(info.dtype for info in infos)),
        settings.seed,
        "full" if full else "projected",
    )


def _report(f: Function, problem: Problem, settings: Settings, outcome: Judgement) -> Report:
    counts = problem.counts
    entries: list[Entry] = [
        entry
        for tally in outcome.tallies
        for entry in (*tally.wrong, *tally.still, *tally.absent, *tally.open)
    ]
    return Report(
        function=getattr(f, "__qualname__", None) or repr(f),
        verdict=outcome.verdict,
        modes=outcome.modes,
        findings=tuple(outcome.findings),
        counts={
            "comparisons": sum(tally.compared for tally in outcome.tallies),
            "nonzero": sum(tally.nonzero for tally in outcome.tallies),
            "failed": sum(tally.failed for tally in outcome.tallies),
            "undecided": sum(tally.undecided + tally.kinks for tally in outcome.tallies),
            "identities": outcome.identities,
            "evaluations": counts.evaluations,
            "vjps": counts.vjps,
            "jvps": counts.jvps,
            "probes": outcome.probes,
        },
        tolerance={
            "eps": settings.eps,
            "atol": settings.atol,
            "rtol": outcome.tolerance.relative,
            "resolution": outcome.tolerance.resolution,
        },
        resolution=max((tally.resolution for tally in outcome.tallies), default=0.0),
        provenance=_provenance(problem, settings, outcome.full),
        entries=tuple(entries),
    )
