"""The examples of our pages: run as they stand, and what they print compared with what is shown.

`python tests/pages.py` writes what they print now into docs/read-a-report.md and docs/how-to, and
the table of operations into docs/vocabulary.md.
"""

import contextlib
import io
import math
import re
import sys
from pathlib import Path

from adjudge.engine.program import OPERATIONS, SECTIONS

ROOT = Path(__file__).parents[1]
HOW_TO = ROOT / "docs" / "how-to"
RUN_HERE = (
    *("crosscheck", "devices", "every-mode", "feasible-directions", "hypothesis", "special-points"),
    *("supplied-derivatives", "tail-derivatives", "blame"),
    *("scipy-minimize", "least-squares", "ode-sensitivities", "surrogate-gradient"),
    *("batch-of-layers", "exact", "autograd", "mlx", "tinygrad"),
)
"""The pages of docs/how-to whose examples are plain Python, without files or commands."""

EXAMPLE = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[-+]?\d+)?(?![\w.]*\w)")
ROUNDING = re.compile(r"(±\s*|\bright [-\d.e, ]*)$")
"""What stands before a number that is rounding: an error bar, or the error of a right pair."""

RELATIVE = 1e-6
"""How far a printed number may be off. Processors, BLAS kernels and numbers of threads round a
double in its last digits, and differences leave ten of them; a wrong derivative is off by more.
"""


def examples(text: str) -> list[tuple[str, str]]:
    """The Python blocks of a page, each with the text that is shown below it (empty: none)."""
    return EXAMPLE.findall(text)


def printed(text: str, **namespace: object) -> list[str]:
    """What each example prints now. The examples build on one another, and on a `namespace`."""
    outputs = []
    for code, _ in examples(text):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, namespace)  # noqa: S102 our own page
        outputs.append(output.getvalue())
    return outputs


def without_numbers(text: str) -> str:
    """`text` with `#` for every number, where the numbers are rounding itself and only words,
    names and verdicts can be compared.
    """
    return re.sub(r"-?\d[\d.]*(e[-+]?\d+)?%?", "#", text)


def differences(shown: str, now: str) -> list[str]:
    """The lines in which two printed texts differ by more than rounding.

    Words, signs, whole numbers and the layout have to be the same. Numbers with a point or an
    exponent may be off by `RELATIVE`, or by one unit of the last digit that is printed. A number
    that is rounding itself (an error bar, the error of a right pair) may be off by a factor of ten.
    """
    old, new = shown.splitlines(), now.splitlines()
    if len(old) != len(new):
        return [f"{len(old)} lines are shown and {len(new)} printed", shown, now]
    return [
        f"shown: {one}\nnow:   {other}"
        for one, other in zip(old, new, strict=True)
        if not _same_line(one, other)
    ]


def _same_line(one: str, other: str) -> bool:
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.finditer(one), NUMBER.finditer(other), strict=True)
    return all(_same_number(a[0], b[0], rounding=_is_rounding(one, a)) for a, b in pairs)


def _is_rounding(line: str, number: re.Match[str]) -> bool:
    return ROUNDING.search(line[: number.start()]) is not None


def _same_number(one: str, other: str, *, rounding: bool) -> bool:
    if one == other:
        return True
    if one.lstrip("-").isdigit() and other.lstrip("-").isdigit():
        return False
    a, b = float(one), float(other)
    if rounding:
        return a > 0 and b > 0 and 0.1 <= a / b <= 10
    return abs(a - b) <= RELATIVE * max(abs(a), abs(b)) + 1.001 * max(_unit(one), _unit(other))


def _unit(number: str) -> float:
    """One unit of the last digit of a number as it is printed."""
    digits, _, exponent = number.partition("e")
    decimals = len(digits.partition(".")[2])
    return 0.0 if digits == number and not decimals else math.pow(10, int(exponent or 0) - decimals)


def rewrite(path: Path) -> None:
    """Writes into a page what its examples print now."""
    text = path.read_text(encoding="utf-8")
    outputs = iter(printed(text))

    def example(match: re.Match[str]) -> str:
        now = next(outputs)
        return f"```python\n{match[1]}```" + (f"\n\n```text\n{now}```" if match[2] else "")

    path.write_text(EXAMPLE.sub(example, text), encoding="utf-8")


def vocabulary(page: str) -> str:
    """The page of the vocabulary, whose words above the first section stay, with its tables as the
    code has them.
    """
    parts = [page.partition("\n## ")[0].rstrip() + "\n"]
    for title, names in SECTIONS.items():
        parts.append(
            f"## {title}\n\n| operation | arguments | meaning | domain | smooth |\n{'| --- ' * 5}|"
        )
        for name in names:
            one = OPERATIONS[name]
            arguments = one.arguments.replace("*xs, *,", r"\*xs, \*,").replace(", *, ", r", \*, ")
            cells = [f"`{name}`", arguments, one.meaning, one.domain, "yes" if one.smooth else "no"]
            parts.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
        parts[-1] += "\n"
    return "\n".join(parts)


if __name__ == "__main__":
    page = ROOT / "docs" / "vocabulary.md"
    page.write_text(vocabulary(page.read_text(encoding="utf-8")), encoding="utf-8")
    for path in (ROOT / "docs" / "read-a-report.md", *(HOW_TO / f"{name}.md" for name in RUN_HERE)):
        try:
            rewrite(path)
        except ModuleNotFoundError as error:  # an engine that is not installed here
            sys.stderr.write(f"{path.name} stays as it is: {error}\n")
