"""JAX's settings of precision and of repeatability: named, allowed for, and as before."""

import importlib
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
from scenarios import over_seeds

import adjudge
from adjudge import Verdict

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import jax
    import jax.numpy as jnp

    from adjudge_jax import JaxBackend

pytestmark = pytest.mark.backend("jax")


def setting_of(array):
    return JaxBackend().environment.precision(array).setting


def array(platform="gpu", dtype="float32"):
    """What the settings look at: no GPU is needed to read them."""
    device = SimpleNamespace(platform=platform)
    return SimpleNamespace(dtype=jnp.dtype(dtype), devices=lambda: [device])


@pytest.mark.parametrize(
    ("setting", "gpu", "tpu"),
    [
        (None, 2.0**-10, 2.0**-7),
        ("default", 2.0**-10, 2.0**-7),
        ("tensorfloat32", 2.0**-10, 2.0**-7),
        ("highest", 2.0**-23, 2.0**-23),
        ("float32", 2.0**-23, 2.0**-23),
        ("BF16_BF16_F32", 2.0**-7, 2.0**-7),
        ("BF16_BF16_F32_X3", 2.0**-15, 2.0**-15),
        ("BF16_BF16_F32_X6", 2.0**-23, 2.0**-23),
        ("TF32_TF32_F32", 2.0**-10, 2.0**-10),
    ],
)
def test_products_are_as_fine_as_the_setting(setting, gpu, tpu):
    backend = JaxBackend()
    try:
        context = jax.default_matmul_precision(setting)
        with context:
            found = [backend.effective_eps(array(platform)) for platform in ("gpu", "tpu", "cpu")]
            named = [setting_of(array(platform)) for platform in ("gpu", "tpu", "cpu")]
    except ValueError:
        pytest.skip(f"this JAX has no {setting}")

    assert [gpu, tpu, 2.0**-23] == found
    assert [eps > 2.0**-23 for eps in found] == [bool(text) for text in named]
    assert gpu == 2.0**-23 or repr(setting) in named[0]


def test_double_precision_is_never_coarse():
    assert "" == setting_of(array(dtype="float64"))


def test_flags_of_xla_that_round_otherwise_are_named(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert "--xla_allow_excess_precision=false" in setting_of(array("cpu", "bfloat16"))
    assert "" == setting_of(array("cpu"))
    monkeypatch.setenv(
        "XLA_FLAGS", "--xla_allow_excess_precision=false --xla_cpu_enable_fast_math=true"
    )
    assert "" == setting_of(array("tpu", "bfloat16"))
    assert "XLA_FLAGS=--xla_cpu_enable_fast_math=true" == setting_of(array("cpu"))


def test_what_makes_a_gpu_repeatable_is_named_until_it_is_set(monkeypatch):
    backend, flag = JaxBackend(), "--xla_gpu_deterministic_ops=true"
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=0")
    assert f"XLA_FLAGS={flag}" == backend.environment.determinism_setting(array())
    assert "" == backend.environment.determinism_setting(array("cpu"))
    monkeypatch.setenv("XLA_FLAGS", f"--xla_gpu_deterministic_ops=false {flag}")
    assert "" == backend.environment.determinism_setting(array())


MADE = {
    "jax_default_matmul_precision": "bfloat16",
    "jax_debug_nans": True,
    "jax_numpy_rank_promotion": "warn",
    "jax_disable_jit": True,
    "jax_default_prng_impl": "rbg",
}


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("name", MADE)
def test_a_setting_that_the_function_makes_is_put_back(name, raises):
    before = getattr(jax.config, name)

    def f(x):
        jax.config.update(name, MADE[name])
        if raises:
            raise KeyError("stop")
        return jnp.sin(x)

    try:
        adjudge.examine(f, jnp.ones(2))
    except KeyError:
        assert raises
    after = getattr(jax.config, name)
    jax.config.update(name, before)

    assert before == after


# ---------------------------------------------------------------- functions without products


@pytest.fixture
def coarse(monkeypatch):
    """Products in TF32 on the CPU, as JAX has them on a GPU; what is computed stays exact."""
    monkeypatch.setitem(importlib.import_module("adjudge_jax.backend").ACCELERATED_EPS, "cpu", 1e-3)


def with_rule(vjp):
    rule = jax.custom_vjp(jnp.sin)
    rule.defvjp(lambda x: (jnp.sin(x), x), lambda x, w: (vjp(x, w),))
    return lambda x: rule(x)


@over_seeds(10)
@pytest.mark.usefixtures("coarse")
def test_a_function_without_products_is_judged_as_exactly_as_its_dtype(seeds):
    x = jnp.linspace(0.5, 2.0, 5)
    wrong = with_rule(lambda x, w: 1.001 * w * jnp.cos(x))

    for seed in seeds:
        report = adjudge.examine(jnp.sin, x, seed=seed)
        assert report.verdict is Verdict.PASS
        assert "IMPRECISE" not in str(report)
        # natively, by tolerances that are given
        assert adjudge.examine(jnp.sin, x, seed=seed, atol=1e-5, rtol=0.0)
        report = adjudge.examine(wrong, x, seed=seed, atol=1e-5, rtol=0.0)
        assert report.verdict is Verdict.FAIL


@pytest.mark.usefixtures("coarse")
def test_products_count_wherever_they_are():
    x = jnp.linspace(0.5, 2.0, 5)
    functions = {
        "in the function": lambda x: jnp.eye(5) @ jnp.sin(x),
        "in a branch": lambda x: jax.lax.cond(x[0] < 1, lambda x: x @ x, jnp.sum, x),
        "in the rule alone": with_rule(lambda x, w: (jnp.eye(5) * jnp.cos(x)) @ w),
        "where nobody sees": lambda x: jax.pure_callback(np.sin, x, x) * 0 + x,
    }

    for name, f in functions.items():
        assert "IMPRECISE" in str(adjudge.examine(f, x, seed=0)), name


@pytest.mark.usefixtures("coarse")
def test_one_engine_of_several_is_accused_where_no_products_are_computed():
    wrong = with_rule(lambda x, w: 1.001 * w * jnp.cos(x))
    torch, autograd = (pytest.importorskip(name) for name in ("torch", "autograd.numpy"))
    x = np.linspace(0.5, 2.0, 5, dtype=np.float32)
    functions = {"jax": wrong, "torch": torch.sin, "autograd": autograd.sin}

    report = adjudge.crosscheck(functions, (x,), [*functions], seed=0, raise_exception=False)

    assert report.verdict is Verdict.FAIL
    assert {one.accused for one in report.divergences} == {("jax",)}
