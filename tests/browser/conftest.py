"""A headless Chromium, as Debian has it: `nox -s page`.

The run of the repository's own tests leaves this folder out. Its tests are skipped where Chromium,
its driver or selenium is not installed.
"""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

WIDTH, HEIGHT = 1280, 900


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for all tests; the pages that they open are files."""
    selenium = pytest.importorskip("selenium.webdriver", reason="pip install selenium")
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("apt-get install chromium chromium-driver")
    options = selenium.ChromeOptions()
    options.binary_location = binary
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    options.add_argument(f"--window-size={WIDTH},{HEIGHT}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = selenium.chrome.service.Service(driver)
    browser = selenium.Chrome(options=options, service=service)
    yield browser
    browser.quit()
