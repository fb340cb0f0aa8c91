"""Functions of which a part is computed in a narrower dtype: over steps shorter than its spacings
nothing of that part shows, and slopes are precise that are not those of the formula.
"""

import numpy as np
from frameworks import jnp
from scenarios import cells, over_seeds

from adjudge import Verdict, examine

TORCH = {
    "a small bfloat16": lambda x: x.sin() + 1e-3 * x.bfloat16().to(x.dtype),
    "a product in bfloat16": lambda x: (x.bfloat16() * x.bfloat16()).to(x.dtype) / 100 + x.sin(),
    "a function of float16": lambda x: x.half().to(x.dtype).exp() / 100 + x**2,
    "a float32 beside float64": lambda x: x.exp() + 1e-4 * x.float().sin().to(x.dtype),
}
# A small part is in `test_jax_conversions`.
JAX = {
    "a function of float16": lambda x: jnp.exp(x.astype("float16").astype(x.dtype)) / 100 + x**2,
}


@over_seeds(10)
@cells("name", torch=[*TORCH], jax=[*JAX])
def test_a_part_in_a_narrower_dtype_is_no_error(adjudge_backend, spoiled, name, seeds):
    f = (JAX if adjudge_backend.name == "jax" else TORCH)[name]
    wrong = [spoiled(f, lambda x, g: 1.05 * g), spoiled(f, lambda x, g: -g)]
    often = name == "a small bfloat16"
    few = 1 if adjudge_backend.name == "jax" else 2
    for seed in seeds if often else seeds[:few]:
        dtype = "float64" if "float64" in name else "float32"
        x = adjudge_backend.array(np.random.default_rng(seed).standard_normal(4), dtype)
        options = {"mode": "projected" if seed % 2 else "full", "seed": seed, "blame": False}
        right = examine(f, x, **options)
        assert right.verdict is not Verdict.FAIL, right
        if seed < 4 or not often:
            assert examine(wrong[(seed + seed // 2) % 2], x, **options).verdict is Verdict.FAIL
