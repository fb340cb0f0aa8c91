"""The search for wrong entries and `max_evaluations=` with the vjps and jvps of JAX."""

from contextlib import suppress

import numpy as np
import pytest

from adjudge import InputError, Status, Verdict, examine

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import jax
    import jax.numpy as jnp

pytestmark = pytest.mark.backend("jax")


@pytest.mark.parametrize("letter", ["R", "F"])
@pytest.mark.parametrize("scalar", [True, False])
def test_two_wrong_entries_of_a_large_input_are_named(letter, scalar):
    @jax.custom_jvp
    def wrong(x):
        return jnp.sin(x)

    def rule(x, v):  # the factor is of the dtype of x, which is another one in 64-bit mode
        twice = jnp.ones_like(x[0]).at[jnp.asarray([700, 1_999])].set(2.0)
        return wrong(x[0]), v[0] * jnp.cos(x[0]) * twice

    wrong.defjvp(rule)
    x = jnp.asarray(np.random.default_rng(1).normal(size=2_000))

    report = examine((lambda x: wrong(x).sum()) if scalar else wrong, x, modes=[letter], seed=1)

    named = {entry.wrt for entry in report.entries if not entry.wrt.endswith("along v")}
    assert {"inputs[0][700]", "inputs[0][1999]"} == named, str(report)
    assert report.counts["evaluations"] <= 240


@pytest.mark.parametrize("modes", [["R"], ["F"], ["R", "F"], ["RR"], ["FR"], ["RF"], ["FF"]])
def test_a_third_of_the_work_compares_a_part_and_the_least_a_comparison(modes):
    x = jnp.linspace(0.1, 1, 24)
    free = examine(jnp.sin, x, modes=modes, mode="full", seed=0).counts
    budget = (free["evaluations"] + free["vjps"] + free["jvps"]) // 3

    report = examine(jnp.sin, x, modes=modes, mode="full", seed=0, max_evaluations=budget)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert {Status.UNFINISHED} == {finding.status for finding in report.findings}
    assert 0 < report.counts["comparisons"] < free["comparisons"]
    counts = report.counts
    assert counts["evaluations"] + counts["vjps"] + counts["jvps"] <= budget

    with pytest.raises(InputError, match="give at least") as refused:
        examine(jnp.sin, x, modes=modes, max_evaluations=2)
    least = int(str(refused.value).split("at least ")[1].split(",")[0])

    assert examine(jnp.sin, x, modes=modes, max_evaluations=least).counts["comparisons"] >= 1
