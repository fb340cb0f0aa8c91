"""The keyword arguments of the verbs, validated, as the settings of a judgement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypedDict

import numpy as np

from adjudge.check.one_problem import Settings
from adjudge.engine import AutodiffBackend
from adjudge.errors import FlagError, InputError
from adjudge.estimate import Reference, bind
from adjudge.problem import (
    Bounds,
    Counts,
    Directions,
    Domains,
    Path,
    Problem,
    first_order,
    fresh_seed,
)
from adjudge.reference import require_reference

Mode = Literal["auto", "full", "projected"]


class Options(TypedDict, total=False):
    """See `gradcheck` for each of them."""

    kwargs: Mapping[str, Any] | None
    wrt: Path | Sequence[Path] | None
    eps: float | None
    bounds: Bounds
    atol: float | None
    rtol: float | None
    nondet_tol: float
    check_undefined_grad: bool
    check_grad_dtypes: bool
    check_batched_grad: bool
    check_batched_forward_grad: bool
    check_forward_ad: bool
    check_backward_ad: bool
    fast_mode: bool | None
    masked: bool | None
    mode: Mode
    seed: int | None
    equal_nan: bool
    max_evaluations: int | None
    in_double: bool | None
    highest_precision: bool
    directions: Directions
    points: Literal["special"] | Sequence[Any] | Mapping[str, Any] | None
    domain: Domains
    reference: Reference | None
    device: str | None
    backend: str | AutodiffBackend | None


def problem_of(
    f: Callable[..., Any], inputs: Any, options: Options, counts: Counts | None = None
) -> Problem:
    """The problem of `f` at `inputs` that `options` describe; see `first_order`."""
    reference = options.get("reference")
    return first_order(
        f,
        inputs,
        kwargs=options.get("kwargs"),
        wrt=options.get("wrt"),
        backend=options.get("backend"),
        masked=options.get("masked"),
        bounds=options.get("bounds"),
        directions=options.get("directions"),
        reference=None if reference is None else partial(bind, reference),
        highest=options.get("highest_precision", False),
        device=options.get("device"),
        counts=counts,
    )


def settings_of(options: Options, *, second: bool = False) -> Settings:
    """The settings that `options` ask for.

    Raises `InputError` for values without meaning, `FlagError` for contradictions, `TypeError`
    for an unknown keyword. `second`: the modes are those of `gradgradcheck`, for the names in
    messages.
    """
    for name in options:
        if name not in Options.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r}")
    seed = options.get("seed")
    settings = Settings(
        seed=fresh_seed() if seed is None else seed,
        eps=options.get("eps"),
        atol=options.get("atol"),
        rtol=options.get("rtol"),
        nondet_tol=options.get("nondet_tol", 0.0),
        equal_nan=options.get("equal_nan", False),
        full=_full(options.get("mode", "auto"), options.get("fast_mode")),
        backward=options.get("check_backward_ad", True),
        forward=options.get("check_forward_ad", False),
        undefined=options.get("check_undefined_grad", True),
        grad_dtypes=options.get("check_grad_dtypes", True),
        batched=options.get("check_batched_grad", False),
        batched_forward=options.get("check_batched_forward_grad", False),
        masked=options.get("masked"),
        max_evaluations=options.get("max_evaluations"),
        in_double=options.get("in_double"),
        highest_precision=options.get("highest_precision", False),
    )
    _validate(settings, second=second)
    _validate_reference(options)
    return settings


def _validate_reference(options: Options) -> None:
    reference = options.get("reference")
    require_reference(reference)
    for name in ("eps", "in_double"):
        if reference is not None and options.get(name):
            raise FlagError(
                f"{name}= is about differences of f, which reference= replaces", "give one of them"
            )


def _full(mode: str, fast_mode: bool | None) -> bool | None:
    if mode not in ("auto", "full", "projected"):
        raise InputError(f"mode={mode!r}", 'give mode="auto", "full" or "projected"')
    if fast_mode is None:
        return None if mode == "auto" else mode == "full"
    if mode != "auto" and (mode == "projected") != fast_mode:
        raise FlagError(f"fast_mode={fast_mode} contradicts mode={mode!r}", "give one of them")
    return not fast_mode


def _validate(settings: Settings, *, second: bool) -> None:
    for name in ("eps", "atol", "rtol", "nondet_tol"):
        value = getattr(settings, name)
        if value is None and name != "nondet_tol":
            continue
        if (
            not isinstance(value, int | float | np.number)
            or not value >= 0
            or (name == "eps" and value == 0)
        ):
            raise InputError(
                f"{name}={value!r}",
                f"give a {'positive' if name == 'eps' else 'non-negative'} number"
                + ("" if name == "nondet_tol" else ", or None for automatic"),
            )
    budget: Any = settings.max_evaluations
    if budget is not None and (not isinstance(budget, int | np.integer) or budget < 0):
        raise InputError(
            f"max_evaluations={budget!r}", "give a non-negative integer, or None for no limit"
        )
    seed: Any = settings.seed
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed={seed!r}", "give a non-negative integer, or None")
    backward = "check_rev_over_rev" if second else "check_backward_ad"
    forward = "check_fwd_over_rev" if second else "check_forward_ad"
    if not settings.backward and not settings.forward:
        raise FlagError(
            f"{backward}=False and {forward}=False leave nothing to check",
            "switch at least one of them on",
        )
    if settings.in_double and settings.fixed:
        raise FlagError(
            "in_double=True needs automatic tolerances, and a function that may not be noisy",
            "leave out eps=, atol=, rtol= and nondet_tol=, or in_double=",
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
