"""benchmarks/sweep.py: the library of its page, and what hangs, dies or is absent."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pages import HOW_TO

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "sweep.py"
PAGE = (HOW_TO / "sweep.md").read_text(encoding="utf-8")


def sweep(folder, *arguments):
    command = [sys.executable, str(SCRIPT), *arguments, "--out", "out.jsonl"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout, [
        json.loads(line) for line in (folder / "out.jsonl").read_text("utf-8").splitlines()
    ]


@pytest.mark.backend("torch")
def test_the_page_shows_what_the_sweep_prints(tmp_path):
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / name).write_text(code, encoding="utf-8")
    (shown,) = re.findall(r"```console\n\$ python benchmarks/sweep.py (.*?)```", PAGE, re.DOTALL)
    arguments, *lines = shown.splitlines()

    printed, outcomes = sweep(tmp_path, *arguments.split()[:-2])

    begun = [line.partition("…")[0].rstrip() for line in lines]
    assert len(begun) == len(printed.splitlines())
    for line, now in zip(begun, printed.splitlines(), strict=True):
        assert now.startswith(line)
    passing = {one["name"] for one in outcomes if one["ending"] == "PASS"}
    assert passing == {
        *("springs.Spring.period", "springs.Spring.energy"),
        *("relax, 1 steps", "relax, 5 steps"),
    }


# Each process imports its engine, and this one is imported quickly.
@pytest.mark.backend("autograd")
def test_what_hangs_dies_or_is_absent_takes_nothing_else_along(tmp_path):
    source = """
        import os, time
        import numpy as np

        def hang(x: np.ndarray):
            time.sleep(60)

        def leave(x: np.ndarray):
            os._exit(3)

        def cube(x: np.ndarray):
            return x**3
    """
    cases = """
        import planted, numpy
        from adjudge import Case

        def cases():
            yield Case(planted.cube, numpy.ones(2) / 3, name="cube", backend="autograd")
    """
    (tmp_path / "planted.py").write_text(textwrap.dedent(source))
    (tmp_path / "planted_cases.py").write_text(textwrap.dedent(cases))
    (tmp_path / "deadly.py").write_text("import os\nos._exit(3)\n")

    _, outcomes = sweep(
        *(tmp_path, "deadly", "nowhere", "planted"),
        *("--backend", "autograd", "--cases", "planted_cases:cases", "--timeout", "5"),
    )

    assert {(one["library"], one["name"], one["ending"]) for one in outcomes} == {
        ("deadly", "what is left of the library", "lost"),
        ("deadly", "", "walked"),
        ("planted", "", "walked"),
        ("planted", "planted: hang", "lost"),
        ("planted", "planted: leave", "lost"),
        ("planted", "planted.cube", "PASS"),
        ("planted", "cube", "PASS"),
    }


SQUARE = """
    import numpy as np
    from autograd.extend import defvjp, primitive
    from autograd.tracer import getval

    @primitive
    def squared(x):
        return x * x

    # wrong: the second derivative is missing
    defvjp(squared, lambda y, x: lambda w: 2 * getval(x) * w)

    def square(x: np.ndarray):
        return squared(x)

    def cube(x: np.ndarray):
        return x**3
"""


@pytest.mark.backend("autograd")
def test_a_stopped_sweep_goes_on_and_another_order_is_another_library(tmp_path):
    (tmp_path / "squares.py").write_text(textwrap.dedent(SQUARE))
    fields = ("library", "name", "ending", "text")
    before = [
        ("finished, second order", "finished.f", "PASS", "not asked again"),
        ("finished, second order", "1.0", "walked", "3 s"),
        ("squares", "squares.square", "PASS", "of another order"),
        ("squares", "", "walked", "2 s"),
        ("squares, second order", "squares.cube", "FAIL", "of a library that is begun again"),
    ]
    lines = [json.dumps(dict(zip(fields, one, strict=True))) for one in before]
    (tmp_path / "out.jsonl").write_text("\n".join(lines) + "\n")

    printed, outcomes = sweep(
        tmp_path, "finished", "squares", "--backend", "autograd", "--order", "2"
    )

    assert [tuple(one[name] for name in fields) for one in outcomes[:4]] == before[:4]
    assert {(one["library"], one["name"], one["ending"]) for one in outcomes[4:]} == {
        ("squares, second order", "squares.square", "FAIL"),
        ("squares, second order", "squares.cube", "PASS"),
        ("squares, second order", "", "walked"),
    }
    assert "| finished, second order 1.0 | 1 | 1 |" in printed
    assert "| squares | 1 | 1 |" in printed
    assert "| not looked into | 1 |" in printed
