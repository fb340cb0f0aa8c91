"""The report of `blame`: the steps of a function that were judged, and which are at fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import indent
from typing import Any

from adjudge.engine import INPUT, Hook, Place, Ref, Step
from adjudge.findings import Fault, Status, Verdict, plain, worst
from adjudge.report import Report, how_often, rule_of, short_place, text_of, which_rule

FAIL = Verdict.FAIL
CUTS = {Status.DETACHED, Status.MISSING, Status.MISMATCH}
"""What may be found about a step without a derivative; some engines return zeros for it."""


@dataclass(frozen=True, eq=False)
class Judged:
    """A step, for all steps that do the same with arrays of the same shapes and dtypes."""

    step: Step
    """The first of them that is wrong, or the first."""
    calls: Sequence[int]
    """The numbers of all of these steps in the program."""
    reports: Mapping[int, Report]
    """The reports of those that were judged, at the values that they saw, by their numbers; those
    at fault come first."""
    at_fault: bool
    """Whether the derivative of the whole is wrong because of it. A step that is wrong alone may
    add nothing: what it gets may not be in the set for which it is right, or its derivative may be
    used nowhere."""
    lacks: Sequence[str] = ()
    """The compositions of modes of which it has no derivative, and the whole has none, or a wrong
    one, because of it. The engine has these of other steps. It is not wrong then, and not at
    fault."""
    of_cotangents: bool = False
    """Whether it is right alone, and wrong for the cotangents that it gets."""
    within: Judged | None = None
    """What is wrong in it, where it is several iterations of a loop, and those that are steps of
    their own are right."""

    @property
    def verdict(self) -> Verdict:
        """The worst verdict on any call."""
        return worst([report.verdict for report in self.reports.values()])

    @property
    def wrong(self) -> list[int]:
        """The numbers of the calls that fail, or else, where the derivative ends in it, of those
        that have none.
        """
        least = self.verdict if self.at_fault else Verdict.FAIL
        return [k for k, report in self.reports.items() if report.verdict is least]

    @property
    def report(self) -> Report:
        """The report of the first call that is wrong, or of the first."""
        if self.within is not None:
            return self.within.report
        return self.reports[(self.wrong or list(self.reports))[0]]

    @property
    def cuts(self) -> bool:
        """Whether the derivative ends in it: see `is_cut`. So it does where a rule is missing."""
        return is_cut(self.step, self.report) or (self.at_fault and self.verdict is not FAIL)

    @property
    def _rule(self) -> tuple[str, Place]:
        """The rule that is wrong, or whose own derivative is, with its line."""
        step = self.step
        wrong = [word for word, found in self.report.modes.items() if found is FAIL]
        # The last letter of a word is the rule, and those before it are what is taken of it.
        forward = all("F" in word for word in wrong) and min(wrong, key=len, default="R")[-1] == "F"
        return (step.forward_rule, step.forward_place) if forward else (step.rule, step.rule_place)

    @property
    def lacking(self) -> list[Fault]:
        """What it lacks as data: a derivative in forward mode, and one in reverse mode."""
        step, modes = self.step, self.report.modes
        none = [word for word, found in modes.items() if found is Status.UNSUPPORTED]
        forward = [word for word in self.lacks if "F" in word] if "F" in none else []
        rest = [word for word in self.lacks if word not in forward]
        found = []
        if forward:
            name = "jvp" if step.rule else "derivative in forward mode"
            found.append(self._lack("", name, forward))
        if rest:
            second = step.rule if "R" not in none else ""
            found.append(
                self._lack(second, "derivative of its own" if second else "derivative", rest)
            )
        return found

    def _lack(self, rule: str, what: str, words: Sequence[str]) -> Fault:
        """Returns what is missing as data: of the derivative of a rule, or else of the step."""
        name = self.step.name.removesuffix(".apply")
        place = self.step.rule_place
        file, line = place if place.file else self.step.place
        data = replace(self.fault, rule=rule or name, file=file, line=line, cuts=False)
        return replace(data, lacks=what, needed_by=tuple(words))

    @property
    def fault(self) -> Fault:
        """The step as data, for the report of a check."""
        if self.within is not None:
            return self.within.fault
        return self._data(
            *self._rule,
            judged=len(self.reports),
            wrong=len(self.wrong),
            cuts=self.cuts,
            under=self.step.under,
            of_cotangents=self.of_cotangents,
        )

    @property
    def unjudged(self) -> Fault:
        """The step as data, where it was not judged."""
        return self._data(self.step.rule, self.step.rule_place, judged=0, wrong=0, cuts=False)

    def _data(self, rule: str, place: Place, **found: Any) -> Fault:
        step = self.step
        file, line = place if rule and place.file else step.place
        return Fault(step.name, rule, file, line, step.module, len(self.calls), **found)

    @property
    def name(self) -> str:
        """The rule with its line where it is custom, else what was called: `Norm.backward
        (norms.py:31)`.
        """
        return rule_of(self.fault)

    @property
    def called(self) -> str:
        """How often it was called, and how often it was wrong."""
        return how_often(self.fault)


@dataclass(frozen=True, eq=False)
class BlameReport:
    """Which step of a function is at fault. It is truthy only where the whole passes and no step
    is at fault.
    """

    function: str
    whole: Report
    """The check of the function itself."""
    judged: Sequence[Judged]
    """What was judged, in the order of the program."""
    steps: Sequence[Step]
    """The program."""
    distinct: int
    """The number of steps that differ in what they do, or in the shapes and dtypes of arrays."""
    explained: bool | None
    """Whether the derivative of the whole is right once that of each step at fault is replaced by
    its slopes; `None` where the whole is not wrong at first order, or nothing is at fault, or the
    differences are too rough to say."""
    opaque: Mapping[int, str]
    """The steps that were not judged, though their turn had come, and why."""
    of_constants: Collection[int] = ()
    """The custom rules whose derivative for arrays that the function closes over was judged."""
    between: bool = False
    """Whether the whole is wrong, and the engine's derivative is not what the rules of the steps
    give together."""
    outside: bool = False
    """Whether the whole is wrong, and the function follows its inputs in a way that the program
    does not show."""
    dead_ends: Sequence[int] = ()
    """The numbers of the steps on the way that make integers, indices or truth values: where the
    derivative of the whole is zero or absent and the function moves, unless all is explained by
    what is at fault; and where nothing else is found, and what goes by them adds to the error."""
    kinks: Sequence[int] = ()
    """The steps that stand at a kink or a jump of their own, where nothing is at fault and the
    derivative of the whole is right beside x: at a kink a rule may give any slope between two, and
    these need not fit together."""
    passing: Sequence[int] = ()
    """The other steps that add to the error of the whole and pass their own check, where nothing is
    at fault."""
    changed: Sequence[Ref] = ()
    """Where it is not what the rules give: the values whose gradient is not what the rules of the
    steps that use them give, the last one first. It is empty where the engine does not show
    this."""
    hooks: Sequence[Hook] = ()
    """The hooks that are set on these values, or on what is computed from them: an engine may show
    what a hook changes as what comes back from the step that made its value."""
    inputs: Sequence[str] = ()
    """The names of the inputs that are checked."""
    work: float = 0.0
    """The work of finding this out in calls of the function, by the entries read and written."""
    note: str = ""
    """Why nothing could be recorded, or why all steps were judged."""

    @property
    def at_fault(self) -> list[Judged]:
        """What is at fault, the first one in the program first."""
        return [one for one in self.judged if one.at_fault]

    @property
    def lacking(self) -> list[Fault]:
        """The derivatives that steps lack, where that is why the whole has none, as data; first
        those by which it fails.
        """
        failing = {word for word, outcome in self.whole.modes.items() if outcome is FAIL}
        found = [fault for one in self.judged for fault in one.lacking]
        return sorted(found, key=lambda fault: failing.isdisjoint(fault.needed_by))

    @property
    def undecided(self) -> list[Judged]:
        """The steps whose check ended without a verdict, as where a budget (`max_evaluations`) ends
        it.
        """
        left = [one for one in self.judged if one.verdict is Verdict.INCONCLUSIVE]
        return [one for one in left if not one.at_fault and not one.lacks]

    @property
    def closed_over(self) -> list[tuple[int, int]]:
        """The operands of custom rules, by the numbers of step and operand, that are arrays which
        the function closes over, and for which they give no derivative, or zeros: whether one is
        meant is not known.
        """
        left = ((k, step) for k, step in enumerate(self.steps) if k not in self.of_constants)
        custom = ((k, step) for k, step in left if step.custom)
        return [(k, j) for k, step in custom for j in step.closed_over]

    @property
    def first(self) -> Judged | None:
        """What is at fault, or the first of several in the program."""
        return next(iter(self.at_fault), None)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict on the whole and on what is at fault."""
        return worst([self.whole.verdict, *(one.verdict for one in self.at_fault)])

    def __bool__(self) -> bool:
        """Returns whether nothing is wrong."""
        return self.verdict is Verdict.PASS

    def __repr__(self) -> str:
        """Returns the headline."""
        return f"<BlameReport {self.headline}>"

    @property
    def _ends_in_integers(self) -> bool:
        """Whether a step that makes integers is all that is found to be wrong."""
        return bool(self.first is None and not self.lacking and self.dead_ends and not self)

    @property
    def headline(self) -> str:
        """One line that says what is at fault, and where it stands."""
        if self.first is None and self.lacking:
            return f"{self.verdict}: {which_rule(self.lacking[0])}"
        if self._ends_in_integers:
            return f"{self.verdict}: {which_rule(dead_end(self.steps[self.dead_ends[0]]))}"
        if self.first is None and self.kinks:
            found = next(one for one in self.judged if self.kinks[0] in one.calls)
            return f"{self.verdict}: {which_rule(replace(found.unjudged, at_kink=True))}"
        if self.first is None:
            if self.hooks:
                one = len({hook[1:] for hook in self.hooks}) == 1
                some = "a hook" if one else "one of these hooks"
                return f"{self.verdict}: {some} changes the gradient: {_hooked(self.hooks)}"
            left = [step for step in self.steps if not step.results and not step.differentiates]
            if self.outside and left:
                names = dict.fromkeys(map(_called, left))
                return f"{self.verdict}: numbers leave the arrays in {', '.join(names)}"
            said = "nothing is wrong" if self else "no rule was found to be at fault"
            if self.note and not self.steps:
                said = "the function was judged as a whole"
            return f"{self.verdict}: {said} in {self.function}"
        return f"{self.verdict}: {which_rule(self.first.fault)}"

    @property
    def _at_kinks(self) -> list[int]:
        """The steps that stand at kinks, each line once."""
        return list({_called(self.steps[k]): k for k in reversed(self.kinks)}.values())[::-1]

    @staticmethod
    def _where(judged: Judged) -> str:
        judged = judged.within or judged
        place, module = judged.step.place, judged.step.module
        return (f" at {_shown(place)}" if place.file else "") + (f" in {module}" if module else "")

    def _change(self, ref: Ref) -> str:
        """Returns which value has another gradient than it should, and between which lines."""
        users = [step for step in self.steps if uses(step, [ref])]
        to = ", ".join(_called(step) for step in users) or "the outputs"
        value = self.inputs[ref.number] if ref.step == INPUT else ""
        if not value:
            made = self.steps[ref.step]
            value = f"the result of {_called(made)}"
        hooks = _hooked(set_on(self.hooks, self.steps, [ref]))
        by = f", past the hook {hooks}" if hooks else ""
        return f"  the gradient of {value} is not what comes back from {to}{by}"

    def __str__(self) -> str:
        """Returns the headline, what is wrong with the step, and what was judged."""
        lines = [self.headline]
        told: set[str] = set()
        for judged in self.at_fault:
            which = which_rule(judged.fault) if judged.fault.cuts else judged.name
            if which in told:  # with arrays of other shapes
                continue
            if told and judged.fault.cuts:
                lines.append(f"also {which}")
            elif told:
                where = "" if judged.fault.rule else self._where(judged)
                lines.append(f"also at fault: {judged.name}{where}, {judged.called}")
            told.add(which)
            if judged.fault.rule and self._where(judged):
                lines.append(f"  first called{self._where(judged)}")
            found = judged.report.ranked
            failing = [one for one in found if self.whole.modes.get(one.mode) is Verdict.FAIL]
            for finding in (failing or found)[:1]:
                lines.append(indent(text_of(finding), "  "))
        lacking = list(dict.fromkeys(map(which_rule, self.lacking)))
        lines += lacking[0 if self.at_fault else 1 :]
        ends = dict.fromkeys(which_rule(dead_end(self.steps[k])) for k in self.dead_ends)
        why = "which has no derivative, since it makes integers, indices or truth values"
        lines += [
            f"  {why}" if k == 0 and self._ends_in_integers else f"{line}, {why}"
            for k, line in enumerate(ends)
        ]
        lines += [f"also at a kink: {_called(self.steps[k])}" for k in self._at_kinks[1:]]
        for finding in self.whole.ranked[:1] if not self.at_fault else ():
            if finding.verdict is not Verdict.PASS:
                lines.append(indent(text_of(finding), "  "))
        if self.explained is not None:
            lines.append(
                "with the slopes of these steps in place of their derivatives the whole is right"
                if self.explained
                else "this does not explain all of the failure: something else is wrong as well"
            )
        if self.between:
            lines.append(
                "the engine's derivative of the whole is not what the rules of its steps give: "
                "look for hooks, writes in place and values that are kept between calls"
            )
        changes: dict[str, list[int]] = {}
        for ref in self.changed:
            changes.setdefault(self._change(ref), []).append(ref.step)
        lines += [line + _numbered(steps) for line, steps in changes.items()]
        if self.outside:
            left = [step for step in self.steps if not step.results or step.opaque]
            lines.append(
                "the function follows its inputs in ways that were not recorded"
                + (":" if left else ", as by what it keeps between calls")
            )
            lines += _counted(
                f"  {step.name} at {_shown(step.place)} {step.opaque}".rstrip() for step in left
            )
        lines += _counted(
            f"adds to the error, and passes its own check: {_called(self.steps[k])}"
            for k in self.passing
        )
        alone = [one for one in self.judged if one.wrong and not one.at_fault]
        if alone:
            names = ", ".join(dict.fromkeys(one.name for one in alone))
            effect = "and without effect on this derivative"
            if any(step.opaque for step in self.steps):
                effect = "and whether that is meant cannot be told beside what is opaque"
            lines.append(f"wrong alone, {effect}: {names}")
        lines += _counted(
            f"not judged: {self.steps[k].name} at {_shown(self.steps[k].place)} {reason}"
            for k, reason in self.opaque.items()
        )
        lines += _counted(
            f"not judged: the derivative of {_called(self.steps[k])} for operand {j}, an array of "
            f"shape {_shape(self.steps[k].operands[j])} that the function closes over"
            for k, j in self.closed_over
        )
        undecided = [_undecided(one) for one in self.undecided]
        lines += undecided[:MOST_UNDECIDED]
        if len(undecided) > MOST_UNDECIDED:
            lines.append(f"not decided: {len(undecided) - MOST_UNDECIDED} more steps")
        return "\n".join([*lines, self.footer])

    @property
    def footer(self) -> str:
        """Returns how much was judged, and what that cost."""
        if not self.steps:
            return self.note
        check = sum(self.whole.counts[one] for one in ("evaluations", "vjps", "jvps"))
        if not self.work:
            return f"the function is one step, and its check took the work of {check} calls"
        return (
            f"{len(self.judged)} of {self.distinct} distinct steps were judged, of "
            f"{len(self.steps)} in all, for the work of {self.work:.0f} calls "
            f"(the check of the whole: {check})" + (f"; {self.note}" if self.note else "")
        )

    @property
    def trace(self) -> str:
        """Returns the program as text, a line for each step, with verdicts beside the steps."""
        verdicts = {k: str(one.verdict) for one in self.judged for k in one.calls}
        verdicts |= dict.fromkeys(self.opaque, "opaque")
        rows = [
            (str(k), verdicts.get(k, ""), step.name, _shown(step.place), step.module)
            for k, step in enumerate(self.steps)
        ]
        widths = [max((len(row[j]) for row in rows), default=0) for j in range(5)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain data: strings, numbers, lists and dicts."""
        return {
            "schema": "adjudge-blame/1",
            "function": self.function,
            "verdict": str(self.verdict),
            "whole": self.whole.to_dict(),
            "judged": [
                {
                    "name": one.step.name,
                    "rule": one.fault.rule,
                    "file": (one.fault.file or one.step.place.file),
                    "line": (one.fault.line or one.step.place.line),
                    "called_at": str(one.step.place),
                    "module": one.step.module,
                    "calls": list(one.calls),
                    "wrong": one.wrong,
                    "at_fault": one.at_fault,
                    "lacks": [plain(fault) for fault in one.lacking],
                    "verdict": str(one.verdict),
                    "report": one.report.to_dict(),
                }
                for one in self.judged
            ],
            "distinct": self.distinct,
            "steps": len(self.steps),
            "explained": self.explained,
            "between": self.between,
            "outside": self.outside,
            "dead_ends": list(self.dead_ends),
            "closed_over": [list(one) for one in self.closed_over],
            "undecided": [
                {"name": one.name, "file": one.step.place.file, "line": one.step.place.line}
                for one in self.undecided
            ],
            "kinks": list(self.kinks),
            "passing": list(self.passing),
            "changed": [list(ref) for ref in self.changed],
            "hooks": [
                {"name": one.name, "file": one.place.file, "line": one.place.line}
                for one in self.hooks
            ],
            "opaque": {str(k): reason for k, reason in self.opaque.items()},
            "work": self.work,
            "note": self.note,
        }


def is_cut(step: Step, report: Report) -> bool:
    """Returns whether a step that fails is one of the engine without a derivative where it moves,
    or with a zero for it.
    """
    found = {one.status for one in report.findings if one.verdict is Verdict.FAIL}
    zero = all(not entry.automatic for entry in report.entries)
    return zero and not step.rule and found <= CUTS


def _counted(lines: Iterable[str]) -> list[str]:
    """Returns each line once, with a count where there were several of it."""
    return [f"{line} ({n} times)" if n > 1 else line for line, n in Counter(lines).items()]


def _shape(array: Any) -> tuple[int, ...]:
    return tuple(array.shape)


def _undecided(judged: Judged) -> str:
    called = "" if judged.fault.rule else f" at {_shown(judged.step.place)}"
    return f"not decided: {judged.name}{called}: {judged.report.outline}"


MOST_UNDECIDED = 10
"""So many steps whose check ended without a verdict are listed. The value is ours."""


def dead_end(step: Step) -> Fault:
    """Returns a step that makes no numbers with a derivative as data. It is not judged."""
    file, line = step.place
    return Fault(step.name, "", file, line, step.module, calls=1, judged=0, wrong=0, cuts=True)


def _called(step: Step) -> str:
    at = f" at {_shown(step.place)}" if step.place.file else ""
    within = f" in module {step.module}" if step.module and step.module not in step.name else ""
    return step.name + at + within


def set_on(hooks: Iterable[Hook], steps: Sequence[Step], refs: Collection[Ref]) -> list[Hook]:
    """Returns the hooks that are set on these values, or on results of steps that use them."""
    users = {k for k, step in enumerate(steps) if uses(step, refs)}
    return [hook for hook in hooks if hook.value in refs or hook.value.step in users]


def uses(step: Step, refs: Collection[Ref]) -> bool:
    """Returns whether a step takes one of these values."""
    return any(isinstance(one, Ref) and one in refs for one in step.operands)


def _hooked(hooks: Iterable[Hook]) -> str:
    """Returns hooks with their lines, each once."""
    names = (f"{hook.name} ({_shown(hook.place)})" for hook in hooks)
    return ", ".join(dict.fromkeys(names))


def _numbered(steps: Sequence[int]) -> str:
    """Returns the numbers of steps as `report.trace` has them; nothing where an input is meant."""
    numbers = sorted({k for k in steps if k != INPUT})
    if not numbers:
        return ""
    some = ", ".join(map(str, numbers[:MOST_NUMBERS]))
    more = ", …" if len(numbers) > MOST_NUMBERS else ""
    return f" (step{'s' * (len(numbers) > 1)} {some}{more})"


MOST_NUMBERS = 5
"""So many numbers of steps are listed. The value is ours."""


def _shown(place: Place) -> str:
    return short_place(place.file, place.line)
