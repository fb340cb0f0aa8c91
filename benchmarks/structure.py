"""How hard the source is to live in: modules, parameters, handlers, prose.

`python benchmarks/structure.py` measures the checkout that it stands in, and
`python benchmarks/structure.py OTHER` another one beside it, column by column. The kit for adapters
(`adjudge.conformance`) is left out of the figures about the core.
"""

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

from harness import table

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
FRAGMENT = re.compile(r"(Of|By|Times|For|In|With|Without|As|From|Over|Where|What|Which|How|That) ")
VERB = re.compile(
    r"\b(is|are|was|were|has|have|had|does|do|did|can|could|may|might|must|will|would|shall|should"
    r"|says|say|makes|make|takes|take|gives|give|holds|hold|stands|stand|returns|return|counts|count"
    r"|raises|raise|needs|need|means|mean|lies|lie|moves|move|shows|show|keeps|keep)\b"
)
MOST_PARAMETERS = 6
FEWEST_OF_A_BARE_TUPLE = 3


def sources(root: Path) -> list[Path]:
    """The modules of the core, without the kit for adapters."""
    core = root / "src" / "adjudge"
    return sorted(path for path in core.rglob("*.py") if "conformance" not in path.parts)


def lines_of(paths: Iterator[Path] | list[Path]) -> int:
    """How many lines these files have together."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def functions(root: Path) -> Iterator[FUNCTION]:
    """Every function and method of the core."""
    for path in sources(root):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, FUNCTION):
                yield node


def parameters(function: FUNCTION) -> int:
    """How many arguments a caller may give it."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len([one for one in named if one.arg not in ("self", "cls")])


def returns_bare_tuple(function: FUNCTION) -> bool:
    """Whether it is annotated to return a plain tuple of three different things or more."""
    given = function.returns
    if not (isinstance(given, ast.Subscript) and ast.unparse(given.value) == "tuple"):
        return False
    parts = given.slice.elts if isinstance(given.slice, ast.Tuple) else []
    return len(parts) >= FEWEST_OF_A_BARE_TUPLE


def broad(handler: ast.ExceptHandler) -> bool:
    """Whether it catches every exception."""
    if handler.type is None:
        return True
    names = {one.id for one in ast.walk(handler.type) if isinstance(one, ast.Name)}
    return bool({"Exception", "BaseException"} & names)


def docstrings(root: Path) -> Iterator[str]:
    """The first sentence of every docstring, of constants and fields as well."""
    for path in sources(root):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                yield " ".join(node.value.value.split("\n\n")[0].split())


def fragment(text: str) -> bool:
    """Whether it begins with a word that continues a sentence, and has no verb to make one."""
    first = re.split(r"[.;:]( |$)", text)[0]
    return bool(FRAGMENT.match(first)) and not VERB.search(first)


def measured(root: Path) -> dict[str, int]:
    """All figures of one checkout."""
    core = root / "src" / "adjudge"
    found = sources(root)
    folders = [path for path in core.iterdir() if (path / "__init__.py").is_file()]
    every = list(functions(root))
    handlers = [
        node
        for path in found
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler) and broad(node)
    ]
    texts = [path.read_text(encoding="utf-8") for path in found]
    return {
        "modules of the core": len(found),
        "modules at the top": len(list(core.glob("*.py"))),
        "modules in the fullest room": max(
            (len(list(room.glob("*.py"))) for room in folders if room.name != "conformance"),
            default=0,
        ),
        "lines of the core": lines_of(found),
        "functions with more than six parameters": sum(
            parameters(one) > MOST_PARAMETERS for one in every
        ),
        "functions that return bare tuples of three and more": sum(map(returns_bare_tuple, every)),
        "handlers of every exception": len(handlers),
        "of these, that do not raise it again": sum(
            ast.unparse(one.body[-1]) != "raise" for one in handlers
        ),
        "lines of comments": sum(
            line.lstrip().startswith("#") for text in texts for line in text.splitlines()
        ),
        "docstrings": len(list(docstrings(root))),
        "docstrings that are fragments": sum(map(fragment, docstrings(root))),
        "lines of adapters": lines_of(sorted((root / "adapters").rglob("*.py"))),
        "lines of tests": lines_of(sorted((root / "tests").rglob("*.py"))),
        "lines of benchmarks": lines_of(
            [path for end in ("py", "md") for path in (root / "benchmarks").rglob(f"*.{end}")]
        ),
    }


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", nargs="*", type=Path, help="other checkouts, put to the left")
    roots = [*parser.parse_args().other, Path(__file__).parents[1]]
    columns = [measured(root) for root in roots]
    rows = [(name, *(column[name] for column in columns)) for name in columns[-1]]
    print(table(("figure", *(root.resolve().name for root in roots)), rows), end="")


if __name__ == "__main__":
    main()
