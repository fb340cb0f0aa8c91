"""This module writes a run as one page of HTML, which opens from disk and fetches nothing.

Jinja2 writes what is seen at once: the summary, and a row for each case. What a case opens to is
data in the page, of which its script makes text and never markup. What many cases have in common,
such as their versions, stands in the page once. The page allows its own script and style alone, by
their hashes, so that nothing that a report says can be executed even if it were not escaped.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adjudge._version import __version__
from adjudge.errors import InputError
from adjudge.findings import Verdict
from adjudge.report import PAIR_WORDS, pictures
from adjudge.suites.results import Ending, Result, RunReport, visible

HERE = Path(__file__).parent
WORST_FIRST = (
    str(Verdict.FAIL),
    *(ending.value for ending in Ending if ending is not Ending.JUDGED),
    str(Verdict.INCONCLUSIVE),
    str(Verdict.PASS),
)
"""The kinds of results, in the order in which the page has them."""
LONGEST_TEXT = 20_000
"""The number of characters of a text that the page holds. The rest is left out in words, since a
traceback may have any length, and the page of thousands of cases must stay one that opens. This
and the next number are ours."""
MOST_ENTRIES = 40
"""The number of entries of a case that the page holds."""
FEWEST_ENTRIES = 2
"""The number of entries of a case for which there is no picture any more."""
MOST_PICTURES = 200
"""The number of cases, the worst first, of which the page has pictures, scripts and many entries,
so that a run of thousands of failures stays a page that opens."""
WIDEST_TABLE = 12
"""A table of pairs with more inputs than this shows those columns that are not right."""
MOST_FINDINGS = 8
"""The number of findings of a case that the page holds. A check at thirty points may have one at
each, and those of the first points say what the others repeat."""


def page(
    report: RunReport, excused: Mapping[str, str] | None = None, *, file: Path | None = None
) -> str:
    """Returns a run as one page of HTML.

    Args:
        report: The run.
        excused: The names of cases whose failure is known, with the reason.
        file: The file of JSON that holds the same run, for the commands that repeat a case.

    Raises:
        InputError: Jinja2 is not installed.
    """
    ready_for_page()
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    known = excused or {}
    results = sorted(report.results, key=lambda result: WORST_FIRST.index(result.kind))
    data = _Data(report.seed, file)
    cases = _visible([data.add(k, result) for k, result in enumerate(results)])
    # A text cannot end the element or open a comment in it where it has none of these characters.
    everything = {"cases": cases, "shared": _visible(data.values)}
    text = json.dumps(everything, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    script, style = (HERE / name for name in ("page.js", "page.css"))
    code, look = script.read_text(encoding="utf-8"), style.read_text(encoding="utf-8")
    counts = Counter(result.kind for result in results)
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(
        "page.html"
    ).render(
        title=_title(report),
        rows=_visible([_row(result, known.get(result.name, "")) for result in results]),
        kinds=[(kind, counts[kind]) for kind in WORST_FIRST if counts[kind]],
        skipped=_visible(report.skipped),
        seed=report.seed,
        seconds=f"{report.seconds:.1f}",
        version=__version__,
        data=Markup(text),  # noqa: S704 escaped above
        pictures=[
            (k, Markup(drawn))  # noqa: S704 its texts are escaped
            for k, drawn in enumerate(map(_pictures, results[:MOST_PICTURES]))
            if drawn
        ],
        script=Markup(code),  # noqa: S704 a file of this package
        style=Markup(look),  # noqa: S704 a file of this package
        policy=f"default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"script-src {_hash(code)}; style-src {_hash(look)}",
    )


def ready_for_page() -> None:
    """Raises before the work what a page would raise after it.

    Raises:
        InputError: Jinja2 is not installed.
    """
    try:
        import jinja2  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(
            "a page needs Jinja2, which is not installed", "pip install 'adjudge[suites]'"
        ) from error


def _visible(value: Any) -> Any:
    """Returns plain data in which every text is `visible`."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {key: _visible(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(item) for item in value]
    return value


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _title(report: RunReport) -> str:
    """Returns the heading: how many cases did not pass."""
    total = len(report.results)
    wrong = sum(result.verdict is not Verdict.PASS for result in report.results)
    if not total:
        return "No case was judged"
    if not wrong:
        return "The case passed" if total == 1 else f"All {total} cases passed"
    return f"{wrong} of {total} case{'s' * (total != 1)} did not pass"


# -- the row of a case


def _row(result: Result, known: str) -> dict[str, str]:
    """Returns what the table shows of a case: beside the columns, what is wrong, and the reason why
    its failure is known.
    """
    report, passed = result.report, result.verdict is Verdict.PASS
    return {
        "kind": result.kind,
        "name": result.name,
        "message": "" if passed else _message(result),
        "known": "" if passed else known,
        "engine": "" if report is None else _engine(report),
        "seconds": f"{result.seconds:.2f}",
        **_worst(report),
    }


def _message(result: Result) -> str:
    """Returns the headline; where the row has the entry and its numbers, the likely mistake in
    their place.
    """
    report = result.report
    if report is None or not _worst_entry(report):
        return result.headline
    findings = _ranked(report)
    if not findings:
        return result.headline
    first = findings[0]
    detail = first.get("detail")
    mistake = detail.get("mistake") if isinstance(detail, Mapping) else None
    return ": ".join(filter(None, (report["function"], first["status"], mistake)))


def _ranked(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the findings: first those that fail, then those that stayed open, then notes."""
    return sorted(report["findings"], key=lambda found: WORST_FIRST.index(found["verdict"]))


def _engine(report: Mapping[str, Any]) -> str:
    made = report["provenance"]
    return f"{made['backend']} {made['dtype']}"


def _worst(report: Mapping[str, Any] | None) -> dict[str, str]:
    """Returns the worst entry in words. Of a case that passed there is only the largest relative
    error that any comparison accepted.
    """
    words = dict.fromkeys(("entry", "automatic", "reference", "relative"), "")
    if report is None:
        return words
    if _agreed(report):
        return words | {"relative": f"≤ {_float(report['resolution']):.1e}"}
    worst = _worst_entry(report)
    if worst is None:
        return words
    return {
        "entry": _name(worst),
        "automatic": f"{_float(worst['automatic']):.6g}",
        "reference": f"{_float(worst['reference']):.6g}",
        "relative": f"{_relative(worst):.2g}".replace("inf", "∞"),
    }


def _agreed(report: Mapping[str, Any]) -> bool:
    return report["verdict"] == Verdict.PASS and bool(report["counts"]["comparisons"])


def _worst_entry(report: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the entry that is off by most; of a case that passed none is."""
    if report["verdict"] == Verdict.PASS:
        return None
    return max((entry for _, entry in _with_point(report, "entries")), key=_excess, default=None)


def _with_point(
    report: Mapping[str, Any], what: str, at: str = ""
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields what a report has under this name, or those of its points that decide something, with
    the point.
    """
    points = report.get("points")
    if not points:
        yield from ((at, one) for one in report.get(what, ()))
    for point, part in (points or {}).items():
        if not part["silent"]:
            yield from _with_point(part, what, point)


def _name(entry: Mapping[str, Any]) -> str:
    return f"d {entry['of']} / d {entry['wrt']}"


def _float(number: Any) -> float:
    """Returns a number of a report, in which those that are not finite are strings."""
    return float(number)


def _gap(entry: Mapping[str, Any]) -> float:
    return abs(_float(entry["automatic"]) - _float(entry["reference"]))


def _excess(entry: Mapping[str, Any]) -> float:
    """Returns the difference in multiples of what was allowed, as `Entry.excess` has it."""
    gap, allowed = _gap(entry), _float(entry["allowed"])
    if not math.isfinite(gap):
        return math.inf
    return gap / allowed if allowed > 0 else math.inf if gap else 0.0


def _relative(entry: Mapping[str, Any]) -> float:
    gap, reference = _gap(entry), abs(_float(entry["reference"]))
    return gap / reference if reference else math.inf if gap else 0.0


# -- what a case opens to


@dataclass
class _Data:
    """The data of the cases; what several of them have in common is in `values` once."""

    seed: int
    file: Path | None
    values: list[Any] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)

    def shared(self, value: Any) -> int:
        """Returns the place of a value among those that are in the page once."""
        place = self._places.setdefault(json.dumps(value), len(self.values))
        if place == len(self.values):
            self.values.append(value)
        return place

    def add(self, k: int, result: Result) -> dict[str, Any]:
        """Returns what the page's script needs of case `k`: its sort keys and its details."""
        report = result.report
        data: dict[str, Any] = {
            "key": self._keys(result),
            "seed": result.seed,
            "command": self._command(result),
            "script": result.script if k < MOST_PICTURES else "",
        }
        if result.file:
            data["file"] = self.shared(result.file)
            data["line"] = result.line
        if result.place is not None:
            data["target"] = self.shared(result.place.target)
            data["variable"] = result.place.key
        if result.verdict is Verdict.PASS:
            data["headline"] = result.headline
        if report is None:
            data["text"] = _cut(result.details)
        if report is not None:
            data |= self._judged(report, MOST_ENTRIES if k < MOST_PICTURES else FEWEST_ENTRIES)
        return {key: value for key, value in data.items() if value not in ("", [])}

    def _judged(self, report: Mapping[str, Any], most: int) -> dict[str, Any]:
        passed = report["verdict"] == Verdict.PASS
        entries = (
            []
            if passed
            else sorted(_with_point(report, "entries"), key=lambda one: -_excess(one[1]))
        )
        modes = list(report["modes"])
        ways = report.get("ways") or ({"": report["modes"]} if len(modes) > 1 else {})
        matrix = [[way, *(row.get(mode, "–") for mode in modes)] for way, row in ways.items()]
        findings = _ranked(report)
        return {
            "findings": [
                [
                    found["verdict"],
                    found["status"],
                    ", ".join(filter(None, (found["mode"], found.get("way", "")))),
                    _cut(found["text"]),
                ]
                for found in findings[:MOST_FINDINGS]
            ],
            "further": max(0, len(findings) - MOST_FINDINGS),
            "entries": [_cells(at, entry) for at, entry in entries[:most]],
            "more": max(0, len(entries) - most),
            "pairs": [self.shared(one) for one in _pairs(report)],
            "matrix": self.shared([["", *modes], *matrix]) if matrix else "",
            "points": [
                [name, part["silent"] or part["verdict"], _first(part)]
                for name, part in report.get("points", {}).items()
            ],
            "counts": self.shared(list(report["counts"].items())),
            "stages": self.shared(
                [
                    [name, one["reached"], one["decided"]]
                    for name, one in report.get("stages", {}).items()
                ]
            ),
            "settings": self.shared([*_settings(report)]),
            "power": self.shared(
                [[f"relative error {x}", f"{p:.1%}"] for x, p in report.get("power", {}).items()]
                if report["verdict"] != Verdict.FAIL
                else []
            ),
        }

    def _keys(self, result: Result) -> list[Any]:
        """Returns what each column is sorted by; `None` stands last in either direction."""
        rank, report = WORST_FIRST.index(result.kind), result.report
        engine = entry = None
        numbers: list[float | None] = [None, None, None]
        if report is not None:
            engine, worst = self.shared(_engine(report)), _worst_entry(report)
            if _agreed(report):
                numbers[2] = _float(report["resolution"])
            elif worst is not None:
                entry = _name(worst)
                numbers = [_float(worst[name]) for name in ("automatic", "reference")]
                numbers.append(_relative(worst))
        return [rank, engine, entry, *map(_number, numbers), round(result.seconds, 4)]

    def _command(self, result: Result) -> str:
        """Returns the command that repeats a case, or none where no command can do that."""
        if result.place is None:
            return ""
        if self.file is not None and self.file.suffix == ".json":  # as replay takes it apart
            return f"adjudge replay {_quoted(f'{self.file}:{result.name}')}"
        target = f"{result.place.target}:{result.place.key}"
        if result.name == target:  # alone it has another name, and so another seed
            return ""
        replayed = result.report is not None and result.report["provenance"].get("exact")
        exact = " --reference exact" if replayed else ""
        return f"adjudge check {_quoted(target)} --seed {self.seed}{exact}"


def _pairs(report: Mapping[str, Any]) -> Iterator[list[Any]]:
    """Yields for each mode a title, the inputs, and for each output its name and cells, which hold
    a verdict and the relative error of that pair. One pair alone is no table.
    """
    tables: dict[str, dict[tuple[str, str], Mapping[str, Any]]] = {}
    for at, one in _with_point(report, "pairs"):
        title = ", ".join(filter(None, (one["mode"], one["way"], at and f"at {at}")))
        tables.setdefault(title, {})[one["output"], one["input"]] = one
    for title, pairs in tables.items():
        wrong = {key for key, one in pairs.items() if one["verdict"] not in (None, Verdict.PASS)}
        outputs = list(dict.fromkeys(output for output, _ in pairs))
        inputs = list(dict.fromkeys(given for _, given in pairs))
        if len(inputs) > WIDEST_TABLE:
            inputs = [given for given in inputs if given in {name for _, name in wrong}]
        if len(outputs) > MOST_ENTRIES:
            outputs = [output for output in outputs if output in {name for name, _ in wrong}]
        rows = [
            [output, [_cell(pairs.get((output, given))) for given in inputs[:WIDEST_TABLE]]]
            for output in outputs[:MOST_ENTRIES]
        ]
        if len(pairs) > 1 and rows:
            yield [title, inputs[:WIDEST_TABLE], rows]


def _cell(pair: Mapping[str, Any] | None) -> list[str]:
    if pair is None or pair["verdict"] is None:
        return ["", PAIR_WORDS[None]]
    relative = f"{_float(pair['relative']):.2g}".replace("inf", "∞")
    sign = "≤ " if pair["verdict"] == Verdict.PASS else ""
    return [pair["verdict"], f"{PAIR_WORDS[Verdict(pair['verdict'])]} {sign}{relative}"]


def _pictures(result: Result) -> str:
    """Returns the pictures of a case that did not pass, as markup whose texts are escaped."""
    report = result.report
    if report is None or report["verdict"] == Verdict.PASS:
        return ""
    return pictures(_visible(_worst_entry(report)), _visible([*_with_point(report, "pairs")]))


def _first(report: Mapping[str, Any]) -> str:
    """Returns the first line of the worst finding of a point; nothing where it has notes alone."""
    for found in _ranked(report):
        if found["verdict"] != Verdict.PASS:
            return f"{found['status']}: {found['text']}".partition("\n")[0]
    return ""


def _cells(at: str, entry: Mapping[str, Any]) -> list[str]:
    return [
        _name(entry) + (f" at {at}" if at else ""),
        entry["mode"],
        f"{_float(entry['automatic']):.12g}",
        f"{_float(entry['reference']):.12g} ± {_float(entry['error']):.1g}",
        f"{_gap(entry):.3g}",
        f"{_float(entry['allowed']):.3g}",
        entry["method"],
    ]


def _settings(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the versions and settings of a check, without its seed."""
    made, tolerance = report["provenance"], report.get("tolerance", {})
    yield "engine", f"{made['backend']} {made['version']}"
    yield "device", made["device"]
    yield "dtype", ", ".join(filter(None, (made["dtype"], made.get("note", ""))))
    yield "mode", made["mode"]
    yield from (
        (f"tolerance {name}", f"{_float(value):.3g}") for name, value in tolerance.items() if value
    )
    yield "numpy", made["numpy"]
    yield "adjudge", made["adjudge"]
    if beyond := report.get("beyond"):
        yield "looked at as well", ", ".join(beyond)


def _number(value: float | None) -> float | str | None:
    """Returns a number as JSON has it: those beyond all others are strings."""
    return value if value is None or math.isfinite(value) else str(value)


def _cut(text: str) -> str:
    more = len(text) - LONGEST_TEXT
    return text if more <= 0 else f"{text[:LONGEST_TEXT]}\n… {more} more characters are left out"


def _quoted(text: str) -> str:
    """Returns a text as one word of a shell. Characters that one cannot see are written in the way
    of bash and zsh, since they would make the command another one than it looks.
    """
    if text.isprintable():
        return shlex.quote(text)
    escaped = re.sub(r"[\\']", r"\\\g<0>", text)
    return f"$'{''.join(c if c.isprintable() else _escape(c) for c in escaped)}'"


def _escape(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))
