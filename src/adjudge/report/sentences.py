"""The sentences about findings.

`SENTENCES` has those that differ in names and numbers only. Where the words depend on the numbers,
a function that is registered with `said` makes them. `REMEDIES` has the advice.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import singledispatch
from typing import Any

import numpy as np

from adjudge import findings
from adjudge.findings import (
    Advice,
    AllowSpread,
    AlsoWrong,
    Attribute,
    Culprit,
    Detail,
    Disagreement,
    Entry,
    Fault,
    Finding,
    Hides,
    IfItIterates,
    InSequence,
    JudgedBy,
    Layout,
    Meaning,
    Method,
    NotInDouble,
    Raiser,
    Reason,
    Refusal,
    Remedy,
    Rule,
    Scheme,
    Setting,
    Silence,
    Slip,
    Status,
    Task,
    Unequal,
    Unjudged,
    Verdict,
    relative_error,
)


def text_of(finding: Finding, modes: str = "") -> str:
    """Returns what a finding says, with its remedy; the first line stands alone.

    `modes`: the modes that it says the same of, where there are several.
    """
    first, *rest = said(finding.detail, finding)
    if _names_its_mode(finding):
        first = f"{modes or _mode_in_way(finding)}: {first}"
    elif finding.way and not isinstance(finding.detail, findings.ValueInWay):
        first = f"{finding.way}: {first}"
    if finding.point:
        first = f"at {finding.point}: {first}"
    if finding.moved:
        rest.insert(0, f"at a point nearby: {_moved(finding.moved)}, off its kink or jump")
    if finding.remedy is Remedy.NOT_NEEDED or isinstance(finding.remedy, JudgedBy):
        first, rest = first_line(first), []  # nobody has to read the whole message
    if finding.remedy is not None:
        rest.append(advice(finding.remedy, finding))
    return "\n  ".join([first, *rest])


def without_repeats(findings: Sequence[Finding]) -> Iterator[tuple[Finding, str]]:
    """Yields every finding with its text; those that say the same of several modes or ways are
    told once.
    """
    told: set[tuple[object, ...]] = set()
    for finding in findings:
        alike = [one for one in findings if _about(one) == _about(finding)]
        if not _names_its_mode(finding) or finding.point or len(alike) == 1:
            yield finding, text_of(finding)
        elif _about(finding) not in told:
            told.add(_about(finding))
            yield finding, text_of(finding, ", ".join(dict.fromkeys(map(_mode_in_way, alike))))


def first_line(text: str) -> str:
    """Returns the line that stands alone."""
    return text.partition("\n")[0]


def _names_its_mode(finding: Finding) -> bool:
    return isinstance(finding.detail, findings.NotSupported | findings.DerivativeRaised)


def _mode_in_way(finding: Finding) -> str:
    return f"{finding.mode} ({finding.way})" if finding.way else finding.mode


def _about(finding: Finding) -> tuple[object, ...]:
    """Returns all that a finding says, but for the mode and the way."""
    return finding.status, finding.note, finding.detail, finding.remedy, finding.point


@singledispatch
def said(detail: Detail, finding: Finding) -> list[str]:
    """Returns what a finding says: a line that stands alone, and the lines under it."""
    if type(detail) not in SENTENCES:
        raise NotImplementedError(f"no sentence for {type(detail).__name__}")
    named = _named(finding)
    return [line.format_map(named) for line in SENTENCES[type(detail)]]


def _named(finding: Finding) -> dict[str, Any]:
    """Returns what a sentence may name: the entry and the mode of a finding, the fields of its
    detail, and words about the rule and the attribute that these are about.
    """
    fields = vars(finding.detail)
    rule = fields.get("rule")
    if not isinstance(rule, Rule):
        rule = Rule.JVP if finding.mode[:1] == "F" else Rule.VJP
    attribute = fields.get("attribute", Attribute.SHAPE)
    on_device = attribute is Attribute.DEVICE
    words = {name: _in_words(value) for name, value in fields.items()}
    return {
        **words,
        **_RULE_WORDS[rule],
        "or_given": f" (or {finding.given}= does)" if finding.given else "",
        "rule": rule,
        "entry": finding.entry or "the inputs",
        "mode": finding.mode,
        "output": words.get("output") or "every output",
        "has": "is on device" if on_device else f"has {attribute}",
        "has_too": "is on" if on_device else f"has {attribute}",
        "of_attribute": f"{'on' if on_device else 'of'} the {attribute}",
    }


def _in_words(value: Any) -> Any:
    """Returns several names as one text, and a member of an enumeration in its words."""
    if isinstance(value, tuple) and value and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return WORDS.get(value, value) if isinstance(value, Enum) else value


MODE_NAMES = {"R": "reverse mode", "F": "forward mode"}

_RULE_WORDS = {
    Rule.VJP: {
        "rule_mode": MODE_NAMES["R"],
        "direction": "backward",
        "derivative": "gradient",
        "primal": "input",
    },
    Rule.JVP: {
        "rule_mode": MODE_NAMES["F"],
        "direction": "forward",
        "derivative": "tangent",
        "primal": "output",
    },
}

WORDS: dict[Enum, str] = {
    Culprit.FUNCTION: "the function writes into",
    Culprit.VJP: "the vjp (backward pass) writes into the cotangent of",
    Culprit.JVP: "the jvp writes into the tangent of",
    InSequence.ENGINE: "f was evaluated here, since this engine does not say that functions may be "
    "evaluated in several threads",
    InSequence.RANDOM: "f draws random numbers, so that it was evaluated here",
    InSequence.WRITES: "f writes into arrays that all its evaluations share, so that it was "
    "evaluated here",
    InSequence.ELSEWHERE: "f has another value at x in the executor, or raises there, so that it "
    "was evaluated here",
    InSequence.HELD: "f holds parameters or arrays that take other values for each evaluation, so "
    "that it was evaluated here",
    InSequence.DERIVATIVE: "derivatives of f were evaluated here, by the engine",
    Layout.EXPANDED: "expanded (stride 0)",
    Layout.ROWS: "expanded along its first axis (stride 0)",
    Layout.LAST: "expanded along its last axis (stride 0)",
    Layout.PART: "part of a larger array (with an offset in memory)",
    Layout.TURNED: "transposed",
    Layout.WITH_GAPS: "transposed with gaps",
    Hides.ZEROS: "nothing but zeros: a missing or wrong factor does not show there",
    Hides.ONES: "nothing but ones: a missing factor or power, or entries that are mixed up, do not "
    "show there",
    Hides.EQUAL: "equal numbers: entries that are mixed up, or shifted, do not show there",
    Hides.SYMMETRIC: "symmetric matrices: a missing transpose does not show there",
    Hides.SAME: "the same numbers: gradients that are swapped may not show there",
    Hides.FLAT: "no output depends on its entries here, so that no mistake shows",
    Hides.REAL: "a complex array without imaginary part: a missing conjugate does not show there",
    Task.UNDEFINED_TANGENTS: "undefined tangents",
    Task.UNDEFINED_COTANGENTS: "undefined cotangents",
    Task.ADDITIVITY: "additivity of the vjp",
    Task.BATCHED_COTANGENTS: "batched cotangents",
    Task.BATCHED_TANGENTS: "batched tangents",
    Task.LOCALISATION: "the search for the wrong entries behind a projection",
}
"""Words for the members of enumerations that stand in the fields of a detail."""

SLIPS = {
    Slip.VJP_SWAPPED: "vjp= is called as vjp(x, w), and passes with its arguments swapped",
    Slip.VJP_IS_JVP: "what was given as vjp= passes as jvp=: it is J v, and not J* w",
    Slip.JVP_SWAPPED: "jvp= is called as jvp(x, v), and passes with its arguments swapped",
    Slip.JAC_TRANSPOSED: "the transpose of what jac= returns passes: rows are outputs, and columns "
    "are inputs",
    Slip.HESS_UPPER: "what hess= returns is not symmetric, and passes with its upper triangle "
    "mirrored",
    Slip.HESS_LOWER: "what hess= returns is not symmetric, and passes with its lower triangle "
    "mirrored",
    Slip.HESSP_SWAPPED: "hessp= is called as hessp(x, p), and passes with its arguments swapped",
}
"""What a derivative by hand has only to undo."""

LOSES_DIGITS = "f loses digits on the way (cancellation, saturation), or is ill-conditioned"

SENTENCES: dict[type[Detail], Sequence[str]] = {
    findings.RuleLosesDigits: (
        "the {rule} is off by up to {part:.0e} of itself, and changes as much where x moves by one "
        "unit of rounding",
        "it loses digits of {dtype} (a part in a narrower dtype, cancellation), or is "
        "ill-conditioned; that is no error of its formula",
    ),
    findings.CoarseAgreement: (
        "all {compared} comparisons agree, but only to {resolution:.0%} of the derivative",
        "differences in so narrow a dtype would accept a missing term as well",
    ),
    findings.ModesDisagree: (
        "forward and reverse mode disagree on {entry} ({count} of {compared} compared)",
        "forward mode  {forward: .12g}",
        "reverse mode  {reverse: .12g}",
        "no differences are involved: one of the two rules is wrong",
    ),
    findings.AffineOff: (
        "{entry}: off by a part of {part:.1e}, and the function is affine there",
        "automatic   {automatic: .17g}",
        "difference  {difference: .17g} ± {error:.1g}   (over the scale of x)",
    ),
    findings.LayoutRaised: (
        "the vjp raises for a cotangent that is expanded, as that of a sum is, or transposed "
        "with gaps in memory (or conjugated): {raised.kind}: {raised.message}",
    ),
    findings.LargeProbeRaised: (
        "the {rule} raises for a {rule.probe} that is {factor:.3g} times one that it takes: "
        "{raised.kind}: {raised.message}",
    ),
    findings.ZeroProbeRaised: (
        "the {rule} raises for a {rule.probe} of zeros: {raised.kind}: {raised.message}",
    ),
    findings.AloneRaised: (
        "the vjp raises where no gradient is required but that of {leaf}: {raised.kind}: "
        "{raised.message}",
    ),
    findings.UndefinedNotZero: (
        "the gradient of {entry} is {value:.6g} when the cotangent of {output} is undefined",
    ),
    findings.UndefinedRaised: (
        "the {rule} raises {error.kind} when the {rule.probe} of {output} is undefined: "
        "{error.message}",
    ),
    findings.UndefinedInHook: (
        "a hook of the backward pass raises {error.kind} when the cotangent of {output} is "
        "undefined: {error.message}",
    ),
    findings.BatchRaised: ("the vmapped {rule} for {entry} raises {error.kind}: {error.message}",),
    findings.DrawsOthers: (
        "the function draws other random numbers under {way} from the same state: the derivative "
        "there is that of another function, and was not compared",
    ),
    findings.BatchNotMade: ("the batch for {mode} raises {error.kind}: {error.message}",),
    findings.EqualRowsDiffer: (
        "the vmapped {rule} for {entry} is another one in each of two equal rows",
    ),
    findings.Asymmetric: (
        "the second derivative of {of} is not symmetric in {entry}: <u, H v> is not <v, H u>",
        "<u, H v>  {one: .12g}",
        "<v, H u>  {two: .12g}   (apart by {part:.1e} of their terms)",
        "no differences are involved: the derivative of the vjp is wrong, or the vjp is not the "
        "gradient of any function",
    ),
    findings.RowsMissing: (
        "no derivative between entries of the batch, where the function moves: other rows of the "
        "output depend on {entry}",
    ),
    findings.RowLeaks: (
        "a derivative where the function does not move: rows of {outputs} other than {row} leak "
        "into the gradient of {entry}",
        "these rows do not change by a bit when {entry} moves; their gradient there is up to "
        "{largest:.6g}",
    ),
    findings.WritesInto: ("{by} {entry}, which it was handed{or_given}",),
    findings.WritesUnchecked: (
        "the function writes into {entry}, which is not checked",
        "every evaluation had a copy of its own, so the comparison stands",
    ),
    findings.Remembers: (
        "the function changes what it closes over: a buffer or an attribute of a module, say",
        "that was put back before each evaluation: f is judged with what it held before the check",
    ),
    findings.AdditionOrder: ("on {device} additions may be done in another order at every call",),
    findings.OneAfterAnother: ("{reason}, one after another and not by executor=",),
    findings.Unmarked: (
        "not checked, since other inputs are marked (requires_grad) and not these: {names}",
    ),
    findings.OpaqueOutputs: ("not checked, since its class is no known container: {names}",),
    findings.RulesLeftOut: ("not checked, since forward mode is not asked for: {names}",),
    findings.SecondLeftOut: ("not checked, since no second derivative is asked for: {names}",),
    findings.Constants: ("not checked, since numbers and integers count as constants: {names}",),
    findings.SpecialNumbers: ("{names}: {hides}",),
    findings.ImplicitSamples: (
        "the derivative of {samplers} is that of the distribution (implicit reparametrisation), "
        "not of f with the drawn numbers held fixed",
        "differences disagree with it, right or wrong",
    ),
    findings.WrongAttribute: (
        "the {derivative} of {entry} {has} {found}, the {primal} {has_too} {expected}",
    ),
    findings.RealForComplex: (
        "the tangent of {entry} is {found}, the output is {expected}",
        "a tangent is real where its primal is real, complex where it is complex",
    ),
    findings.ReferenceElsewhere: (
        "the reference is another function: at {entry} it differs from f(x) by {gap:.3g} "
        "({count} of {entries} entries)",
        "function   {function: .17g}",
        "reference  {reference: .17g}   (allowed difference {allowed:.3g})",
    ),
    findings.ValueInaccurate: (
        "{dtype} value off by {ulps:.3g} ulp at {output}",
        "{dtype:<9}{narrow: .9g}",
        "float64  {double: .9g}",
        LOSES_DIGITS,
    ),
    findings.CarriesLess: (
        "the function carries {dtype} precision ({outputs} is rounded to {bits} bits)",
        "it is judged by that; a smaller error in its derivative cannot be seen",
    ),
    findings.CoarseProducts: (
        "products of {dtype} on {device} are computed to {eps:.1e}: {setting}",
    ),
    findings.CoarseResults: ("the engine computes {dtype} to {eps:.1e}: it is judged by that",),
    findings.CoarseOperations: (
        "on {device} some operations round otherwise than {dtype}: {setting}",
    ),
    findings.NoCheck: ("no check can be made: {error.message}",),
}
"""The sentences by the situation, as lines of which the first stands alone."""


UNEQUAL: dict[type[Unequal], tuple[str, str, str]] = {
    findings.ValueUnder: ("the value under {rule_mode} is not f(x)", "{rule_mode}", "f(x)"),
    findings.ValueInWay: (
        "the function has another value under {way}",
        "{way}",
        "without {way}",
    ),
    findings.NotHomogeneous: (
        "the {rule} is not linear in its {rule.probe}: "
        "{rule}(-{factor:.7g} u) is not -{factor:.7g} {rule}(u)",
        "{rule}(-{factor:.7g} u) / -{factor:.7g}",
        "{rule}(u)",
    ),
    findings.UnlikeAtMultiple: (
        "the {rule} of the {taken} does not follow the {taken.probe} of the {taken}: it is another "
        "one where that is {factor:.7g} times as large",
        "at {factor:.7g} w, scaled back",
        "at w",
    ),
    findings.NotAdditive: (
        "the {rule} is not additive in its {rule.probe}: "
        "{rule}(u + v) is not {rule}(u) + {rule}(v)",
        "{rule}(u+v)",
        "{rule}(u)+{rule}(v)",
    ),
    findings.LayoutMatters: (
        "the vjp depends on the memory layout of its cotangent: it is wrong for one that is "
        "{layout}",
        "{layout}",
        "contiguous",
    ),
    findings.UndefinedNotZeros: (
        "undefined tangents beside that of {leaf} do not act as zeros",
        "undefined",
        "zeros",
    ),
    findings.AnotherAfterwards: (
        "the vjp at x is another one once the function has been evaluated elsewhere",
        "afterwards",
        "before",
    ),
    findings.AnotherAlone: (
        "the gradient of {leaf} is another one where no other gradient is required",
        "alone",
        "with the others",
    ),
    findings.BatchUnlikeLoop: (
        "the vmapped {rule} for {leaf} is not the loop over the batch",
        "vmap",
        "loop",
    ),
}
"""A sentence, and what the one and the other number are called, where two ways to the same numbers
differ."""


@said.register
def _unequal(detail: Unequal, finding: Finding) -> list[str]:
    named = _named(finding)
    sentence, *names = (part.format_map(named) for part in UNEQUAL[type(detail)])
    width = max(map(len, names))
    others = {0: "", 1: " and one other"}.get(detail.others, f" and {detail.others} others")
    lines = [
        f"{sentence}, at {finding.entry}{others}",
        f"{names[0]:<{width}}  {detail.one: .12g}",
        f"{names[1]:<{width}}  {detail.two: .12g}",
    ]
    if isinstance(detail, findings.ValueInWay):
        lines.append("one of the two evaluates another function, or loses digits")
    return lines


@said.register
def _alone_not_tried(detail: findings.AloneNotTried, finding: Finding) -> list[str]:
    raised = detail.raised
    if detail.spent:
        return [
            f"gradients of some of {detail.leaf} without the others were not tried: the budget is "
            "spent"
        ]
    why = f"raises {raised.kind}: {raised.message}" if raised else "has another value"
    return [
        f"the gradient of {detail.leaf} was not tried without the others: where no other input "
        f"requires one, the function {why}"
    ]


# -- automatic values against estimates


@said.register
def _disagreement(detail: Disagreement, finding: Finding) -> list[str]:
    entry = detail.first
    mode = " over ".join(MODE_NAMES.get(letter, letter) for letter in finding.mode)
    automatic, reference = told_apart(entry.automatic, entry.reference)
    gap = abs(entry.automatic - entry.reference)
    off = ""
    if finding.verdict is Verdict.FAIL and np.isfinite(entry.relative):
        off = f", off by {part(entry.relative)}"
    lines = [
        f"{entry.name}: automatic {automatic}, reference {reference}{off}",
        *filter(None, [_meaning(detail)]),
        f"{mode}{f' ({finding.way})' * bool(finding.way)}: {_count(detail, finding.verdict)}",
        f"automatic   {entry.automatic: .{17 if entry.enclosure else 12}g}",
        f"reference   {_known_to(entry)}   ({how(entry.method)})",
        f"difference  {gap: .3g}   (allowed {entry.allowed:.3g})",
    ]
    if entry.slopes is not None and np.all(np.isfinite(entry.slopes)):
        one, two = entry.slopes
        # The hull of two branches does not say which of them is to the left.
        unordered = entry.projected or entry.from_reference
        left, right = ("least", "most") if unordered else ("left", "right")
        one, two = (round(slope, 9 - _exponent(max(abs(one), abs(two)))) for slope in (one, two))
        lines.append(f"slopes      {one: .9g} {left}, {two:.9g} {right}")
    near = detail.nearby
    if near is not None and finding.note:
        kink = {
            Meaning.ENDLESS: "vertical tangent at x",
            Meaning.JUMP: "jump at x",
        }.get(detail.meaning, "kink at x")
        if detail.meaning is Meaning.KINK:
            kink += "; the automatic value lies between the one-sided slopes"
        kink += f"; right at {near.right} points nearby"
        return [kink, *lines, _moved(near.reach)]
    if detail.also is not None and not (detail.mistake and detail.also.many):
        lines.append(_also(detail.also))  # a mistake says of how many entries it is one
    elif off and detail.count == 1 and not (entry.projected or detail.mistake):
        lines.append("no other entry was found to be wrong")
    if detail.meaning is Meaning.WRONG and finding.verdict is Verdict.FAIL:
        lines.append(
            f"look at what {finding.given}= returns"
            if finding.given
            else _where_to_look(entry, finding.mode)
        )
    if near is not None and near.judged:
        lines.append(f"right at {near.right} of {near.judged} points nearby ({_moved(near.reach)})")
    return lines


def _exponent(number: float) -> int:
    """Returns the power of ten of the first digit."""
    return math.floor(math.log10(number)) if number > 0 else 0


def certified_by(entry: Entry | None) -> str:
    """Returns the line about the interval that a certified PASS agrees with least closely."""
    if entry is None:
        return ""
    return (
        f"farthest from its interval: {entry.name}: automatic {entry.automatic:.17g}, "
        f"reference {_known_to(entry).strip()} ({how(entry.method)})\n"
    )


def _known_to(entry: Entry) -> str:
    """Returns the reference with its error bar: with more digits where an interval is known."""
    if entry.enclosure is None:
        return f"{entry.reference: .12g} ± {entry.error:.1g}"
    middle, radius = entry.enclosure
    mantissa, e, power = middle.partition("e")
    cut = mantissa[:SHOWN_DIGITS]
    sign = "" if middle.startswith("-") else " "
    return f"{sign}{cut}{'…' * (cut != mantissa)}{e}{power} ± {radius}"


SHOWN_DIGITS = 20
"""How many characters of an interval's middle are printed; all stand in the report as data."""


def how(method: Method) -> str:
    """Says how a number was come by that automatic values are compared with."""
    scheme, many = method.scheme, method.evaluations > 2
    took = f", {method.evaluations} evaluations" if method.evaluations else ""
    if scheme is Scheme.CENTRAL:
        return f"central difference{'s' * many}{took}"
    if scheme is Scheme.REFERENCE_DIFFERENCES:
        return f"differences of the {method.reference}"
    return f"{_SCHEMES.get(scheme, method.reference)}{took}"


_SCHEMES = {
    Scheme.CENTRAL_LADDER: "central differences, Richardson",
    Scheme.ONE_SIDED_LADDER: "one-sided differences, Richardson",
    Scheme.REVERSE: "reverse mode",
    Scheme.NOT_FINITE: "x is not finite there",
    Scheme.NO_ROOM: "no step of the ladder fits between the bounds",
    Scheme.TOO_SMALL: "no step of the ladder moves x: it lies among the smallest numbers of its "
    "dtype",
}


HUGE_PART = 1e6
"""A relative error above this is not told in digits: the reference is the rounding of a zero, and
no unit to count in. The value is ours. No verdict depends on it."""


def part(error: float) -> str:
    """Returns a relative error in words."""
    if error > HUGE_PART:
        return "more than a million times the reference"
    return f"{100 * error:.3g}%" if 1e-5 <= error < 100 else f"{error:.2g} of the reference"


def _count(detail: Disagreement, verdict: Verdict) -> str:
    compared = f"{detail.count} of {detail.compared} comparison{'s' * (detail.compared != 1)}"
    if verdict is Verdict.FAIL:
        return f"{compared} disagree{'s' * (detail.count == 1)}"
    return compared if verdict is Verdict.PASS else f"{compared} left open"


def _also(also: AlsoWrong) -> str:
    if also.many:
        if also.tested <= 1:
            return "more entries are wrong; only this one was compared by itself"
        every = "both" if also.tested == 2 else f"all {also.tested}"
        found = f"{also.found} of the {also.tested}" if also.found < also.tested else every
        alone = f"{found} that were compared one by one"
        return f"more entries are wrong: {alone}, and others"
    return f"wrong as well: {', '.join(also.names)}"


_RULES = {
    "R": "the vjp (backward pass)",
    "F": "the jvp",
    "RR": "the vjp of the vjp (double backward)",
    "FR": "the jvp of the vjp",
    "RF": "the vjp of the jvp",
    "FF": "the jvp of the jvp",
}


def _where_to_look(entry: Entry, mode: str) -> str:
    """Says which rule makes the wrong numbers, of what and for what."""
    rule = _RULES.get(mode, "the derivatives of the rule")
    given, output = entry.input or "the inputs", entry.output or "the outputs"
    cut = ", which may hold something for constant (detach, stop_gradient, a saved number)"
    where, probe, of = f"for {given}", "cotangent", output
    if mode[:1] == "F":
        where, probe, of = f"for {output}", "tangent", given
    return f"look at what {rule} makes of the {probe} of {of} {where}{cut if mode[1:] else ''}"


_MEANINGS = {
    Meaning.WRONG: "",
    Meaning.SPURIOUS: (
        "a derivative where the function stands still: its values near x are all the same"
    ),
    Meaning.DETACHED: "the output is cut off from the graph (detach, .data, no_grad), yet it moves",
    Meaning.MISSING: "no derivative (the engine has none) where the function moves",
    Meaning.SAME_ARRAY: "the function returned the very same array for two different inputs: is it "
    "cached (lru_cache, memo by id)?",
    Meaning.STALE_VALUES: "the function returned the values of another input, and does not while "
    "every input is kept alive: is it cached by id?",
    Meaning.KINK: "the function has a kink here; the automatic value lies between the one-sided "
    "slopes",
    Meaning.WIDE_AT_KINK: "the function has a kink here, and the error bar is wider than the gap "
    "between its slopes, so that it does not show whether the automatic value lies between them",
    Meaning.NAN_AT_KINK: "the function has a kink here, and the automatic value is not a number",
    Meaning.KINK_ELSEWHERE: "x lies on a kink that does not show along this tangent, or not all of "
    "it (a tie of several entries, or a kink of other outputs), and the automatic value is no "
    "slope here",
    Meaning.JUMP: "the function jumps at x: no value is its derivative there",
    Meaning.SWITCH: "x lies at a jump, a tie or the edge of a branch: nothing is proved there",
    Meaning.ENDLESS: "the automatic value is not finite: the function may have a vertical tangent "
    "at x, where no number is its derivative",
    Meaning.WIDE: "differences cannot decide: the error bar is too wide",
    Meaning.WIDE_REFERENCE: "the reference cannot decide: its error bar, or the rounding of the "
    "automatic derivative, is too wide",
    Meaning.OWN_ROUNDING: "the interval is narrow, and the automatic value is off by no more than "
    "rounding makes of a rule that is written with values of f",
    Meaning.LOST_DIGITS: "the rule is right in exact arithmetic, and rounding takes more of its "
    "digits here than a derivative may be off by",
    Meaning.NOT_FINITE: "the function is not finite near x",
    Meaning.NO_REFERENCE: "the reference has no number for the derivative at x",
}


def _meaning(detail: Disagreement) -> str:
    if detail.mistake:
        return detail.mistake
    if detail.accuracy is not None:
        return f"the automatic derivative is accurate to {detail.accuracy:.1e} only"
    if detail.meaning is Meaning.SATURATED:
        return _saturated(detail.first)
    return _MEANINGS[detail.meaning]


def _saturated(entry: Entry) -> str:
    what = (
        f"a derivative of {abs(entry.automatic):.2g} cannot be seen in f"
        if entry.automatic
        else "f moves farther off, so that zero is in doubt"
    )
    return f"{what}: the rounding of f alone makes {entry.rounding_level:.1g} over the scale of x"


@said.register
def _saturated_entries(detail: findings.Saturated, finding: Finding) -> list[str]:
    entries = "1 entry lies" if detail.count == 1 else f"{detail.count} entries lie"
    one = f"{detail.name} is {detail.value:.2g}"
    return [f"{entries} below the rounding of f, beside larger ones: {one}"]


@said.register
def _budget_spent(detail: findings.BudgetSpent, finding: Finding) -> list[str]:
    left = []
    if detail.rows:
        left.append(f"{detail.rows} of {detail.all_rows} rows of reverse mode")
    if detail.columns:
        left.append(f"{detail.columns} of {detail.all_columns} columns")
    if detail.doubtful:
        left.append(
            f"{detail.doubtful} columns that two evaluations do not settle: no ladder was climbed"
        )
    left += [WORDS[task] for task in detail.tasks]
    return [
        f"the budget is spent: {detail.compared} of {detail.planned} comparisons made, "
        f"{detail.spent} of max_evaluations={detail.limit:.0f}",
        f"left: {'; '.join(left)}",
    ]


@said.register
def _nothing_compared(detail: findings.NothingCompared, finding: Finding) -> list[str]:
    empty = ", ".join(f"{name} {shape}" for name, shape in detail.empty)
    agree = "; its shapes, its dtypes and a second run agree" if finding.note else ""
    return [f"nothing was compared: no entries in {empty}{agree}"]


# -- identities of the rules


@said.register
def _nonzero_at_zero(detail: findings.NonzeroAtZero, finding: Finding) -> list[str]:
    probe = detail.rule.probe
    rule = "backward" if detail.rule is Rule.VJP else "forward"
    return [
        f"a zero {probe} gives {detail.value:.6g} for {finding.entry}, not zero",
        "the local derivative is not finite: zero times infinity, or NaN, is NaN"
        if finding.status is Status.NONFINITE
        else f"the {rule} pass is not multiplied by its {probe}",
    ]


@said.register
def _nothing_read(detail: findings.NothingRead, finding: Finding) -> list[str]:
    triangle = f"the strict {'upper' if detail.upper else 'lower'} triangle of {detail.leaf}"
    return [
        f"a derivative where the function reads nothing: {triangle}: {detail.count} of "
        f"{detail.entries} entries",
        "the outputs do not change by a bit when other values stand there; the derivative is up "
        f"to {detail.largest:.6g}, at {finding.entry}",
    ]


# -- purity and repeatability


@said.register
def _unrepeatable(detail: findings.Unrepeatable, finding: Finding) -> list[str]:
    what, calls = finding.entry, "evaluations at the same x"
    if detail.rule is not None:
        what = f"the {detail.rule} at {finding.entry}"
        calls = f"calls with the same {detail.rule.probe}"
    lines = [
        f"{what} differs by {detail.gap:.3g} between two {calls}",
        f"first   {detail.first:.17g}",
        f"second  {detail.second:.17g}",
        f"{detail.units:.2g} units of rounding of {detail.dtype} at the largest entry: "
        f"{_looks(detail)}",
    ]
    if detail.allowed is not None:
        lines.append(f"nondet_tol={detail.allowed:.3g} allows it")
    elif finding.note:
        lines.append("allowed for: a derivative is not wrong by that")
    return lines


def _looks(detail: findings.Unrepeatable) -> str:
    if detail.reordered:
        return "as another order of additions makes (atomics, threads, where arrays lie)"
    if detail.rounding:
        return "randomness, hidden state, or additions whose large terms cancel"
    return "randomness or hidden state: another order of additions makes far less"


@said.register
def _draws_random(detail: findings.DrawsRandom, finding: Finding) -> list[str]:
    lines = ["the function, or its derivative, draws random numbers"]
    if detail.replayed:
        lines.append(
            "for each draw that was judged, the random state was put back before each evaluation"
        )
    if detail.agreed and not detail.replayed:
        lines.append("its results agreed where they were compared")
    if detail.replayed and not detail.agreed:
        lines.append("evaluations differ all the same: not all that is random comes from there")
    return [*lines, "the state is restored after the check"]


# -- what is not checked


@said.register
def _closes_over(detail: findings.ClosesOver, finding: Finding) -> list[str]:
    unreached = ", ".join(detail.unreached)
    return [
        f"the function closes over {', '.join(detail.names)}, whose derivatives are not checked",
        *([f"it does not use {unreached}"] if unreached else []),
    ]


# -- values, shapes, dtypes, devices


@said.register
def _not_finite(detail: findings.NotFinite, finding: Finding) -> list[str]:
    entries = f"{detail.count} of {detail.entries} output entries are not finite"
    if detail.pole:
        return [
            f"{finding.entry} is {detail.value} at x: {entries}, and they are something else "
            "beside x, so that no difference shows a derivative; the others are compared"
        ]
    if detail.left_out:
        claimed = "the rule gives a derivative there; " if finding.open else ""
        return [
            f"{finding.entry} is {detail.value} at x and beside it: {entries} and are left out; "
            f"{claimed}the others are compared"
        ]
    return [f"{finding.entry} is {detail.value} at x: {entries}"]


@said.register
def _input_not_finite(detail: findings.InputNotFinite, finding: Finding) -> list[str]:
    entries = f"{detail.count} of {detail.entries} entries of x are not finite"
    return [f"{finding.entry} is {detail.value}: {entries}, and nothing is compared along them"]


# -- precision


def _two_precisions(detail: findings.TwoPrecisions) -> list[str]:
    wide = "exact" if detail.replayed else "float64"
    return [f"{detail.dtype:<9}{detail.narrow: .9g}", f"{wide:<9}{detail.double: .9g}"]


def _off(detail: findings.TwoPrecisions) -> str:
    return f"off by {detail.ulps:.3g} ulp" if np.isfinite(detail.narrow) else "not finite"


@said.register
def _narrow_wrong(detail: findings.NarrowWrong, finding: Finding) -> list[str]:
    off = relative_error(abs(detail.narrow - detail.double), detail.double)
    factor = f", all entries by the factor {detail.factor:.6g}" if detail.factor != 1 else ""
    formula = f"float64 derivative {'right' if detail.right else 'undecided'}, "
    wide = "by exact replay" if detail.replayed else "in float64"
    return [
        f"{finding.entry}: {'' if detail.replayed else formula}"
        f"{detail.dtype} derivative wrong: {detail.narrow:.6g}, {wide} {detail.double:.6g}"
        + (f", off by {part(off)}" if np.isfinite(off) else ""),
        *_two_precisions(detail),
        f"{_off(detail)}{factor}: alike at nearly all points and probes; rounding would change",
    ]


@said.register
def _narrow_inaccurate(detail: findings.NarrowInaccurate, finding: Finding) -> list[str]:
    return [
        f"{'formula PASS; ' if detail.right and not detail.replayed else ''}"
        f"{detail.dtype} derivative {_off(detail)} at "
        f"{finding.entry}",
        *_two_precisions(detail),
        f"{LOSES_DIGITS}; or the rule for {detail.dtype} is wrong by what {detail.dtype} values "
        "of f cannot show",
    ]


@said.register
def _not_in_double(detail: NotInDouble, finding: Finding) -> list[str]:
    return [f"the formula is not judged in float64: {why_not_in_double(detail)}"]


_REFUSALS = {
    Refusal.OTHER_STRUCTURE: "its outputs have another structure",
    Refusal.OTHER_VALUE: "its value is another one",
    Refusal.OTHER_VALUE_BEYOND_ROUNDING: "its value is another one, beyond rounding",
    Refusal.OTHER_DERIVATIVE: "the derivative is another one, and wrong itself",
    Refusal.NARROW_INSIDE: "it computes with less than double precision inside",
    Refusal.VARIES: "its calls differ less than nondet_tol= allows them to in its own dtype",
}


def why_not_in_double(detail: NotInDouble) -> str:
    """Says why a function is not judged in double precision; the words follow on `in float64`."""
    if detail.refusal is Refusal.RAISES:
        words = f"it raises {detail.name}: {detail.words}"
    elif detail.refusal is Refusal.NOT_SUPPORTED:
        words = detail.words
    elif detail.refusal is Refusal.STAYS_NARROW:
        of = (
            ""
            if detail.gradient is None
            else f"the {_RULE_WORDS[detail.gradient]['derivative']} of "
        )
        words = f"{of}{detail.name} stays {detail.words}"
    else:
        words = _REFUSALS[detail.refusal]
    return words + ("" if detail.eps is None else f", and with an eps of {detail.eps:.2g} inside")


# -- exceptions


@said.register
def _not_supported(detail: findings.NotSupported, finding: Finding) -> list[str]:
    return [detail.found, *([detail.remedy] if detail.remedy else [])]


@said.register
def _derivative_raised(detail: findings.DerivativeRaised, finding: Finding) -> list[str]:
    message = detail.error.message.strip() or "no message"
    does = "does not run in this way: it " if detail.beside else ""
    where = [note for note in getattr(finding.cause, "__notes__", ()) if "adjudge: " in note]
    said_of_it = [note.partition("adjudge: ")[2] for note in where]
    return [f"the derivative {does}raises {detail.error.kind}: {message}", *said_of_it]


@said.register
def _raised_at_point(detail: findings.RaisedAtPoint, finding: Finding) -> list[str]:
    if detail.by is Raiser.UNSTABLE_OUTPUT:
        return [f"f changes the shape or dtype of its output: {detail.error.message}"]
    who = "f raises" if detail.by is Raiser.FUNCTION else "f does not raise; its derivative raises"
    return [f"{who} {detail.error.kind}: {detail.error.message}"]


# -- remedies


def advice(remedy: Advice, finding: Finding) -> str:
    """Returns the line that says what to do."""
    if isinstance(remedy, Setting):
        return remedy.words
    if isinstance(remedy, JudgedBy):
        return f"judged by {', '.join(remedy.ways)}"
    if isinstance(remedy, AllowSpread):
        detail = finding.detail
        assert isinstance(detail, findings.Unrepeatable)
        # A tolerance as large as the values would let every derivative pass.
        small = detail.gap <= SMALL_SPREAD * max(abs(detail.first), abs(detail.second))
        allow = f"or allow the spread: nondet_tol={remedy.nondet_tol:g}" if small else ""
        if detail.rule is not None:
            return f"make the {detail.rule} repeatable{', ' * small}{allow}"
        if detail.rounding:
            return f"fix the randomness or hidden state of the function{', ' * small}{allow}"
        return (
            "draw from the global random state, or from a generator that the function holds or is "
            "passed, which a check replays, or from one that is made with a fixed seed at each "
            f"call; keep no state between calls{'; ' * small}{allow}"
        )
    if isinstance(remedy, IfItIterates):
        # what a few roundings to 24 bits make of a derivative
        single = 2.0**-28 <= remedy.tolerance <= 2.0**-21
        return (
            "is it the derivative of another formula, or of an approximation"
            f"{', or was a number in it rounded to float32' * single}? Only if the function "
            f"iterates to a tolerance of about {remedy.tolerance:.0e} (ODE steps, a fixed point, a "
            "solver), its derivative is no closer: tighten that, or fix the number of steps, for "
            f"the check; or allow it: atol={remedy.atol:.0e}"
        )
    return REMEDIES[remedy].format_map(_named(finding))


SMALL_SPREAD = 1e-2
"""The largest spread, over the values that differ, for which a message offers to allow it. The
value is ours. No verdict depends on it."""

REMEDIES = {
    Remedy.MOVE_OFF_KINK: "move x off the kink to check the derivative itself",
    Remedy.MOVE_OFF_JUMP: "move x off the jump to check the derivative itself",
    Remedy.MOVE_OFF_TANGENT: "check the derivative at another x",
    Remedy.GUARD_BRANCHES: "NaN or an infinity where the function is finite often comes from a "
    "branch that where() did not take: give that branch a harmless argument first, as in "
    "x_safe = where(x > 0, x, 1); or from a number on the way that a narrow dtype cannot hold",
    Remedy.DECLARE_SURROGATE: (
        "return zero; or, where the gradient replaces that of a staircase on purpose, say what it "
        "should be: reference=adjudge.reference.derivative(jvp=lambda x, v: v); a function that "
        "iterates to a tolerance (bisection) stands still over steps below it: tighten that"
    ),
    Remedy.MOVE_INTO_DOMAIN: "move x into the domain of the function",
    Remedy.MOVE_INTO_DOMAIN_OR_ALLOW_NAN: "move x into the domain of the function, or pass "
    "equal_nan=True to let agreeing NaNs pass",
    Remedy.WIDEN_DTYPE: "check in a wider dtype, at a point where the function is less noisy, or "
    'with reference="exact"',
    Remedy.GIVE_REFERENCE: 'pass reference="exact", or f in mpmath where it cannot be replayed; or '
    "evaluate a form of f that keeps its tail",
    Remedy.GIVE_REFERENCE_FOR_SATURATED: "not verified, whatever the verdict: pass "
    'reference="exact", or f in mpmath where it cannot be replayed, to compare them, too',
    Remedy.SHARPEN_REFERENCE: "give adjudge.reference.mpmath(g), or a derivative that keeps its "
    "digits",
    Remedy.KEEP_DIGITS: "if these digits matter, write the derivative in a form in which nothing "
    "cancels: s(x) s(-x) in place of s (1 - s), say",
    Remedy.MATCH_REFERENCE: "nothing is compared with it: give the same function, constants "
    "included",
    Remedy.ENLARGE_BUDGET: "give a larger max_evaluations, or mode='projected'",
    Remedy.FILL_ARRAYS: "check at inputs and outputs that are not empty",
    Remedy.MEND_CONSTANT: "there is no truncation: mend the constant, or the precision, of the "
    "rule",
    Remedy.MEND_NARROW_DTYPE: "look for what depends on the dtype: a kernel, a cast, a constant",
    Remedy.MULTIPLY_BY_PROBE: ("multiply by the {rule.probe}, and by nothing that depends on it"),
    Remedy.FOLLOW_MULTIPLES: (
        "a rule is linear in what it is applied to, and so is its derivative: where the {rule} "
        "is taken of it, multiply by that and by nothing that depends on its size or sign (clamp, "
        "abs, a comparison with zero)"
    ),
    Remedy.LIMIT_PROBE: (
        "the rule loses digits in proportion to the size of its {rule.probe}, under a "
        "scaled loss for example"
    ),
    Remedy.KEEP_SMALL_PROBE: (
        "the rule loses digits of a small {rule.probe}, under the mean of many entries for "
        "example: it adds larger numbers and takes them away again"
    ),
    Remedy.STAY_FINITE: (
        "the dtype has room for a {rule.probe} of this size: where the {direction} pass has a "
        "limit of its own (a square or an exponential of the {rule.probe}, a number of steps), "
        "divide the {rule.probe} by its largest entry first, and multiply the result by that"
    ),
    Remedy.ACCEPT_ANY_SIZE: (
        "the {direction} pass should take a {rule.probe} of any size: zeros come from what does "
        "not depend on the function, and large numbers from a scaled loss"
    ),
    Remedy.APPLY_LINEAR_MAP: "the {direction} pass must apply a linear map to its {rule.probe}; a "
    "solver in it that stops at a tolerance is linear to no more than that",
    Remedy.READ_STRIDES: "read the cotangent by its strides and its offset, or copy it into "
    "contiguous memory first; a complex one may be a conjugate that is still to be taken",
    Remedy.KEEP_WITH_CALL: "keep what the vjp reads with the call that it belongs to: on a class "
    "or in a global the next call overwrites it, and a function that is used twice gets a wrong "
    "gradient",
    Remedy.MIND_REQUIRED: "compute each gradient wherever its own input needs one (mind the "
    "index), from numbers that are kept for whichever inputs need gradients",
    Remedy.ACCEPT_UNDEFINED: ("treat an undefined (None) {rule.probe} as zeros"),
    Remedy.ACCEPT_OR_EXCUSE_UNDEFINED: (
        "treat an undefined (None) {rule.probe} as zeros, or pass "
        "check_undefined_grad=False if it cannot occur"
    ),
    Remedy.RETURN_VALUE: "the rule for the derivative must return the value of the function",
    Remedy.RETURN_ATTRIBUTE: "return a {derivative} {of_attribute} of its {primal}",
    Remedy.ZERO_GRADIENT: "zero the gradient there",
    Remedy.ZERO_GRADIENT_OR_CHECK_SYMMETRIC: "zero the gradient there; it is symmetric, so the "
    "input likely stands for a symmetric matrix: check along symmetric matrices: "
    "directions='symmetric'",
    Remedy.ADD_OTHER_ROWS: "the vjp must add what the other rows give to the gradient of each row",
    Remedy.SEPARATE_ROWS: "keep the entries of the batch apart in the vjp",
    Remedy.WORK_ON_COPY: "work on a copy; a caller's array must not change",
    Remedy.PASS_RANDOM_NUMBERS: "random numbers that the function draws differ there: pass them in",
    Remedy.GIVE_BATCHING_RULE: (
        "give the {rule} a batching rule, or leave out the check of batched gradients"
    ),
    Remedy.MEND_BATCHING_RULE: "mend the batching rule of the {rule}",
    Remedy.USE_HIGHEST_PRECISION: "allowed for here; highest_precision=True checks without it",
    Remedy.TRY_HIGHEST_PRECISION: "if they are used here, see what is left without it: "
    "highest_precision=True",
    Remedy.ACCEPT_DOUBLE: "let the function accept float64, or leave out in_double=True",
    Remedy.PASS_SAMPLES: "pass the sample in as an input to check what is made of it",
    Remedy.CHECK_CAPTURED: "check them as well: captured=True; or pass them as inputs",
    Remedy.CHECK_SECOND: "check it as well: order=2",
    Remedy.CHECK_FORWARD: "check forward mode as well: check_forward_ad=True",
    Remedy.NAME_INPUTS: "mark them, or name all that is to be checked: wrt=",
    Remedy.RETURN_CONTENTS: "return what it holds as a tuple or a dict of arrays",
    Remedy.PASS_ARRAYS: "pass them as floating arrays to check their derivatives",
    Remedy.NAME_OUTPUTS: "compute it by what the engine records; or, where an output is detached "
    "on purpose (a metric, saved statistics), name the others: outputs=[0, ...]",
    Remedy.FIND_CUT: "look for what cuts it off on the way: detach, stop_gradient, no_grad, "
    "numbers taken out of the engine (.item(), NumPy), a rule that returns None",
    Remedy.LEAVE_OUTPUT_OUT: "where this output is meant to have no derivative (a metric, saved "
    "statistics), name the others: outputs=[0, ...]",
    Remedy.GIVE_OTHER_POINTS: "check at other numbers as well: points=[other inputs, ...]",
    Remedy.MIND_UNDEFINED_IN_HOOK: (
        "let the hook return where its gradient is None, or pass check_undefined_grad=False; the "
        "derivative itself does not depend on it"
    ),
    Remedy.NOT_NEEDED: "batching was not asked for",
}


# -- why a point decides nothing


_REASONS = {
    Reason.RAISES: "{f} raises {name}",
    Reason.NOT_FINITE: "{f} is not finite",
    Reason.NOT_FINITE_NEARBY: "{f} is not finite nearby",
    Reason.KINK: "{f} is not smooth (kink)",
    Reason.JUMP: "{f} is not smooth (jump)",
    Reason.VERTICAL_TANGENT: "{f} is not smooth (vertical tangent)",
    Reason.OUT_OF_RANGE: "the derivative leaves the range of the dtype",
    Reason.ROUNDING_OF_X: "rounding of x moves {f} as much as a step",
    Reason.ONLY_ROUNDING: "{f} is nothing but rounding",
    Reason.HARDLY_MOVES: "{name} hardly moves {f}",
    Reason.STEPS: "{f} moves in steps, as stairs do",
    Reason.INTEGERS: "x has no fraction: stairs look straight",
    Reason.UNCONFIRMED: "other probes do not confirm it",
}


def why_silent(silence: Sequence[Silence]) -> str:
    """Says why a point decides nothing; empty where it counts."""
    return "; ".join(
        _REASONS[one.reason].format(
            f=f"mode {one.modes_taken} of f" if one.modes_taken else "f", name=one.name
        )
        for one in silence
    )


# -- which step is at fault


def short_place(file: str, line: int) -> str:
    """Returns `norms.py:31`, with the path from the current folder where it lies below that."""
    if not file:
        return "(source not known)"
    return f"{os.path.relpath(file) if file.startswith(os.getcwd()) else file}:{line}"


def rule_of(fault: Fault) -> str:
    """Returns the rule with its line, or else what was called: `Norm.backward (norms.py:31)`."""
    if not fault.rule or not fault.file:
        return fault.rule or fault.step
    return f"{fault.rule} ({short_place(fault.file, fault.line)})"


def how_often(fault: Fault) -> str:
    """Returns how often a step was called, and how often it was wrong."""
    if fault.calls == 1:
        return "called once"
    part = f"in {fault.wrong} of {fault.judged}"
    if fault.wrong == fault.judged:
        part = (
            "in all" if fault.judged == fault.calls else f"in all {fault.judged} that were judged"
        )
    return f"called {fault.calls} times, wrong {part}"


def which_rule(fault: Fault) -> str:
    """Returns which rule is at fault, in which step the derivative ends, or what a rule lacks."""
    if fault.lacks:
        need = "needs" if len(fault.needed_by) == 1 else "need"
        *first, last = fault.needed_by
        words = f"{', '.join(first)} and {last}" if first else last
        return f"{rule_of(fault)} has no {fault.lacks}, which {words} {need}"
    called = f" at {short_place(fault.file, fault.line)}" if fault.file else ""
    called += f" in {fault.module}" if fault.module else ""
    if fault.cuts:
        under = f", which was called under {fault.under}" if fault.under else ""
        return f"the derivative ends in {fault.step}{called}{under}"
    if fault.changed and fault.rule:
        return f"a hook changes the gradient: {rule_of(fault)}"
    if fault.changed:
        users = ", ".join(dict.fromkeys(fault.users)) or "the outputs"
        return (
            f"the gradient of {fault.step}{called} is not what comes back from {users}: look for "
            "hooks, writes in place and values that are kept between calls"
        )
    if fault.at_kink:
        named = rule_of(fault) if fault.rule else fault.step + called
        return (
            f"{named} stands at a kink of its own, and its slope there is not that of the whole, "
            "which is right beside x"
        )
    called = "" if fault.rule else called
    alone = ", right alone and wrong for the cotangents that it gets"
    return (
        f"the rule at fault: {rule_of(fault)}{called}, {how_often(fault)}"
        f"{alone if fault.of_cotangents else ''}"
    )


def what_was_left(unjudged: Unjudged) -> str:
    """Returns what the search for the rule at fault did not come to."""
    if not unjudged.steps:
        return (
            f"no rule was looked for: the budget left {unjudged.budget} calls for that, too few "
            "(adjudge.blame has none)"
        )
    names = list(dict.fromkeys(_step_of(fault) for fault in unjudged.steps))
    some, more = ", ".join(names[:MOST_LEFT]), len(names) - MOST_LEFT
    return (
        f"not judged, since the budget of {unjudged.budget} calls ended (adjudge.blame has none): "
        + some
        + (f" and {more} more" if more > 0 else "")
    )


def _step_of(fault: Fault) -> str:
    at = f" at {short_place(fault.file, fault.line)}" if fault.file and not fault.rule else ""
    return rule_of(fault) + at


MOST_LEFT = 5
"""So many steps that were not judged are named. The value is ours."""


# -- shared


def _moved(reach: float) -> str:
    return f"x moved by up to {100 * reach:.2g}% of the scale of each input"


def told_apart(a: float, b: float) -> tuple[str, str]:
    """Returns both numbers with as many digits as it takes to tell them apart, six at least."""
    for digits in (6, 9, 12, 17):
        one, two = f"{a:.{digits}g}", f"{b:.{digits}g}"
        if one != two:
            break
    return one, two
