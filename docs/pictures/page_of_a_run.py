"""Takes the pictures of the page of a run: a suite that fails, in light, and one that passes, dark.

`python docs/pictures/page_of_a_run.py` needs NumPy, PyTorch, JAX, selenium, Pillow and Chromium.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import torch
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By

from adjudge import ByHand, Case, run
from adjudge.suites import Place, RunReport, page

HERE = Path(__file__).parent
WIDTH = 1200
X = np.random.default_rng(0).normal(size=(8, 5))
T = torch.as_tensor(X)


def softmax(x: np.ndarray) -> np.ndarray:
    """The function of two cases, one of which has the derivative along the other axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_vjp(axis: int) -> ByHand:
    """The softmax with a vjp that sums along this axis."""

    def vjp(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        s = softmax(x)
        return s * (w - (w * s).sum(axis, keepdims=True))

    return ByHand(softmax, vjp=vjp)


def one_entry_off(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The vjp of sin, one entry of which is off."""
    g = w * np.cos(x)
    g[3, 2] *= 1.01
    return g


def linear(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    """A function with two outputs and three inputs."""
    y = np.tanh(x @ a + b)
    return {"y": y, "norm": np.sum(a * a)}


def linear_vjp(x: np.ndarray, a: np.ndarray, b: np.ndarray, w: dict) -> tuple[np.ndarray, ...]:
    """Its vjp, which leaves the norm out of the gradient of `a` and has that of `b` twice."""
    g = w["y"] * (1 - np.tanh(x @ a + b) ** 2)
    return g @ a.T, x.T @ g, 2 * g.sum(0)


def scan(x: np.ndarray) -> np.ndarray:
    """A function of five numbers whose Jacobian is triangular."""
    return np.cumsum(np.sin(x)) * x


def scan_vjp(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Its vjp, which is off where the second number goes into the fourth result."""
    jacobian = np.tril(np.outer(x, np.cos(x))) + np.diag(np.cumsum(np.sin(x)))
    jacobian[3, 1] *= 1.02
    return w @ jacobian


def no_table(x: np.ndarray) -> np.ndarray:
    """A function that raises."""
    raise LookupError("no table for these inputs")


CASES = {
    "losses/softmax": Case(softmax_vjp(-1), X),
    "losses/softmax along the wrong axis": Case(softmax_vjp(0), X),
    "losses/log1p exp": Case(
        ByHand(lambda x: np.logaddexp(0, x), vjp=lambda x, w: w / (1 + np.exp(-x))), X
    ),
    "kernels/sin, one entry off by 1 %": Case(ByHand(np.sin, vjp=one_entry_off), X),
    "kernels/sin, twice": Case(ByHand(np.sin, vjp=lambda x, w: 2 * w * np.cos(x)), X),
    "kernels/floor at a jump": Case(ByHand(np.floor, vjp=lambda x, w: 0 * w), 0 * X),
    "layers/linear, two gradients wrong": Case(
        ByHand(linear, vjp=linear_vjp), (X, X[:5, :3].copy(), X[0, :3].copy())
    ),
    "layers/scan, one entry off by 2 %": Case(ByHand(scan, vjp=scan_vjp), X[0], mode="full"),
    "tables/lookup": Case(ByHand(no_table, vjp=no_table), X),
    "torch/silu, second order": Case(torch.nn.functional.silu, T, order=2),
    "torch/relu at special points": Case(torch.nn.functional.relu, T, points="special"),
    "torch/layer norm": Case(torch.nn.LayerNorm(5, dtype=torch.float64), T),
    "jax/inverse": Case(jnp.linalg.inv, jnp.eye(3) + 0.1),
    "jax/tanh, second order": Case(jnp.tanh, jnp.ones(3), order=2),
}


def main() -> None:
    """Runs the cases and takes both pictures."""
    found = run(CASES, seed=1)
    results = [
        replace(
            one,
            file=f"/home/me/project/checks/{one.name.partition('/')[0]}.py",
            place=Place(f"checks/{one.name.partition('/')[0]}.py", f"CASES[{k}]"),
        )
        for k, one in enumerate(found.results)
    ]
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in ("headless=new", "no-sandbox", "hide-scrollbars", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    browser = webdriver.Chrome(
        options=options, service=webdriver.chrome.service.Service(shutil.which("chromedriver"))
    )
    passing = [one for one in results if one.verdict == "PASS"]
    for name, scheme, shown in (("failing", "light", results), ("passing", "dark", passing)):
        report = RunReport(shown, found.seed, found.seconds)
        with tempfile.NamedTemporaryFile("w", suffix=".html", encoding="utf-8") as file:
            file.write(page(report, file=Path("adjudge.json")))
            file.flush()
            feature = {"name": "prefers-color-scheme", "value": scheme}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            browser.get(f"file://{file.name}")
            if name == "failing":
                for case in ("two gradients wrong", "off by 2 %"):
                    browser.find_element(By.XPATH, f"//button[contains(., '{case}')]").click()
            size = {"width": WIDTH, "height": 1, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            size["height"] = browser.execute_script("return document.body.scrollHeight")
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            picture = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")
            picture.quantize(128, Image.Quantize.MAXCOVERAGE).save(
                HERE / f"page_{name}.png", optimize=True
            )
    browser.quit()


if __name__ == "__main__":
    main()
