"""A headless Chromium for tools and tests that open the report's page."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

#: Debian's packages `chromium` and `chromium-driver`.
BROWSERS, DRIVERS = ("chromium", "chromium-browser", "google-chrome"), ("chromedriver",)


def browser_missing() -> str | None:
    """Return why no page can be opened here, with the command that fixes it, or None."""
    if find_spec("selenium") is None:
        return "selenium is not installed; pip install selenium"
    if not (_first(BROWSERS) and _first(DRIVERS)):
        return "Chromium or its driver is not installed; apt-get install chromium chromium-driver"
    return None


def _first(names: tuple[str, ...]) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield a browser with a fresh profile and without network access."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = _first(BROWSERS) or ""
    # Root, as in CI's containers, may not use the sandbox, and /dev/shm is small there.
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(_first(DRIVERS)))
    try:
        yield driver
    finally:
        driver.quit()
