"""One check at several points: the inputs given, and special points or the caller's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from adjudge.bounds import Bounds
from adjudge.errors import AdjudgeError, FlagError, InputError, UnstableOutputError
from adjudge.findings import Finding, Status, Verdict, worst
from adjudge.options import Options, settings_of
from adjudge.pointwise import GIVEN, silent
from adjudge.report import Report
from adjudge.special import SpecialPoint, special_points


def at_points(check: Callable[..., Report], inputs: Any, options: Options) -> Report:
    """`check(inputs, **options)` at the inputs given and at the points of `options`, as one report.

    Raises what the check raises at the inputs given, and `InputError` for points that make no
    sense.
    """
    found, left_out, bounds = _read(inputs, options)
    rest: dict[str, Any] = {
        name: value for name, value in options.items() if name not in ("points", "domain")
    }
    rest |= {"seed": settings_of(options).seed, "bounds": bounds}
    given = check(inputs, **rest)
    reports = {GIVEN: given}
    own = not isinstance(options.get("points"), str)
    for point in found:
        reports[point.name] = _at(point, check, rest, given, own=own)
    return _combined(reports, left_out)


def _read(inputs: Any, options: Options) -> tuple[Sequence[SpecialPoint], Sequence[str], Bounds]:
    """The points, the names of those outside of the domain, and the bounds that steps keep."""
    points, domain, kwargs = options.get("points"), options.get("domain"), options.get("kwargs")
    if isinstance(points, str):
        if points != "special":
            raise InputError(f"points={points!r}", 'give "special", or points of your own')
        special = special_points(
            inputs,
            domain,
            kwargs=kwargs,
            wrt=options.get("wrt"),
            bounds=options.get("bounds"),
            masked=options.get("masked"),
            backend=options.get("backend"),
        )
        return special, special.left_out, special.bounds
    if domain is not None:
        raise FlagError(
            'domain= says which special points to take, and points= is not "special"',
            'give points="special", or leave out domain=',
        )
    if isinstance(points, Mapping):
        own = {str(name): point for name, point in points.items()}
    elif isinstance(points, list | tuple):
        own = {f"points[{k}]": point for k, point in enumerate(points)}
    else:
        raise InputError(
            f"points= is a {type(points).__name__}",
            'give "special", a list of inputs, or a mapping from names to inputs',
        )
    if GIVEN in own or not own:
        raise InputError(
            f"points= names a point {GIVEN!r}" if own else "points= holds no point",
            f"{GIVEN!r} are the inputs beside it; give at least one point of another name",
        )
    found = [SpecialPoint(name, point, kwargs or {}) for name, point in own.items()]
    return found, (), options.get("bounds")


def _at(
    point: SpecialPoint,
    check: Callable[..., Report],
    options: Mapping[str, Any],
    given: Report,
    *,
    own: bool,
) -> Report:
    """The report at `point`; where the check cannot be made there, one that says so."""
    try:
        # overflow and division by zero belong to such points: what they lead to is judged
        with np.errstate(all="ignore"):
            return check(point.inputs, **{**options, "kwargs": point.kwargs})
    except UnstableOutputError as error:
        finding = _raised(error, "f changes the shape or dtype of its output", "")
    except InputError as error:
        if own:
            error.add_note(f"adjudge: at {point.name}")
            raise
        text = f"no check can be made: {error}"
        finding = Finding(Status.UNRESOLVED, next(iter(given.modes), ""), "", text)
    except AdjudgeError:
        raise
    except Exception as error:
        notes = getattr(error, "__notes__", ())
        if any("of the function" in note for note in notes):
            finding = _raised(error, "f", "")
        else:
            finding = _raised(
                error, "f does not raise; its derivative", next(iter(given.modes), "R")
            )
    return replace(
        given,
        verdict=finding.verdict,
        modes=dict.fromkeys(given.modes, finding.verdict),
        findings=(finding,),
        counts=dict.fromkeys(given.counts, 0),
        resolution=0.0,
        entries=(),
        power={},
    )


def _raised(error: Exception, who: str, mode: str) -> Finding:
    """An exception at a point: with a mode it is the derivative's, and leaves that mode open."""
    text = f"{who} raises {type(error).__name__}: {error}"
    return Finding(Status.RAISED, mode, "", text, open=True, cause=error)


def _combined(reports: Mapping[str, Report], left_out: Sequence[str]) -> Report:
    given = reports[GIVEN]
    deciding = {name: report for name, report in reports.items() if not silent(name, report)}
    modes: dict[str, Verdict] = {}
    for report in deciding.values():
        for mode, verdict in report.modes.items():
            modes[mode] = worst([verdict, modes.get(mode, verdict)])
    return replace(
        given,
        verdict=worst([report.verdict for report in deciding.values()]),
        modes=modes,
        findings=tuple(
            replace(finding, text=f"at {name}: {finding.text}")
            for name, report in deciding.items()
            for finding in report.findings
            if name == GIVEN or finding.verdict is not Verdict.PASS
        ),
        counts={key: sum(r.counts[key] for r in reports.values()) for key in given.counts},
        tolerance={
            key: max((r.tolerance[key] or 0.0 for r in deciding.values()), default=0.0)
            if value is not None
            else None
            for key, value in given.tolerance.items()
        },
        resolution=max(report.resolution for report in deciding.values()),
        entries=tuple(entry for report in deciding.values() for entry in report.entries),
        power={},
        points=dict(reports),
        left_out=tuple(left_out),
    )
