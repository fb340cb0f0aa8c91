"""JAX's settings of precision and of repeatability: named, allowed for, and as before."""

from contextlib import suppress
from types import SimpleNamespace

import pytest

import adjudge

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
