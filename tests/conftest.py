"""What the tests share: one thread per library, a fixed place for temporary results, and the folder
of real eyes."""

import os

# before torch or numpy is imported: two cores are shared by everything that runs at once
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("MPLBACKEND", "Agg")
# nothing may be fetched while testing; a test that would want to finds out at once
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from pathlib import Path  # noqa: E402

import pytest  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
DATA = os.environ.get("CEVIT_DATA")  # as it is before a test sets it aside


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root."""
    return ROOT


@pytest.fixture(scope="session")
def grape_folder() -> Path:
    """Folder of the GRAPE pairs; without it the test is skipped, for the photographs may not be
    passed on."""
    return _data("grape")


@pytest.fixture(scope="session")
def papila_folder() -> Path:
    """Folder of the PAPILA pairs."""
    return _data("papila")


@pytest.fixture(scope="session")
def uwhvf_folder() -> Path:
    """Folder of the summary tables of UWHVF."""
    return _data("uwhvf")


def _data(name: str) -> Path:
    folder = Path(DATA or "") / name
    if not DATA or not folder.is_dir():
        looked = f"{folder} does not exist" if DATA else "CEVIT_DATA is not set"
        pytest.skip(
            f"the real eyes of {name!r} are not here ({looked}); "
            "how_to_read_and_rerun says where to get them"
        )
    return folder.resolve()


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, driven by playwright; nothing is downloaded."""
    from tools.publication import browser_path

    path = browser_path()
    if path is None:
        reason = (
            "no Chromium found: install Debian's chromium, or name the program in CEVIT_CHROMIUM"
        )
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    quiet = "no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
    with sync_playwright() as driver:
        running = driver.chromium.launch(
            executable_path=path, args=[f"--{option}" for option in quiet.split()]
        )
        yield running
        running.close()
