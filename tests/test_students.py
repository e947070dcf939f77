"""What students get, in an environment of their own: installed beside the torch that is there, run
to the end, and opened in JupyterLab by a browser."""

import re
import subprocess
import time
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import nbformat
import pytest

from tools import handout

pytestmark = pytest.mark.weekly
TORCH = [f"{name}=={version(name).split('+')[0]}" for name in ("torch", "torchvision")]
RUN = (
    "import sys, nbformat, nbclient; page = nbformat.read(sys.argv[1], 4); "
    "nbclient.NotebookClient(page, timeout=900, kernel_name='python3').execute()"
)


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory) -> Path:
    """The students' notebooks, unpacked beside a new environment that has torch and JupyterLab."""
    folder = tmp_path_factory.mktemp("students")
    *_, archive = handout.write_student(folder / "made")
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)
    venv.create(folder / "own", with_pip=True)
    pip = [folder / "own" / "bin" / "python", "-m", "pip", "install", "-q"]
    done = subprocess.run([*pip, *TORCH, "jupyterlab>=4,<5"], capture_output=True, text=True)
    if re.search("No matching distribution|connection|resolve", done.stderr):
        pytest.skip("no registry of packages answers here, and a new environment needs one")
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / handout.NAME / "notebooks"


def program(notebooks: Path, name: str) -> str:
    return str(notebooks.parents[1] / "own" / "bin" / name)


def test_students_install_in_minutes_keep_their_torch_and_run_every_notebook(
    notebooks, monkeypatch
):
    for name in ("CEVIT_ROOT", "CEVIT_RESULTS", "CEVIT_DATA", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    set_up = nbformat.read(notebooks / "data.ipynb", 4).cells[0].source
    begun = time.monotonic()
    subprocess.run([program(notebooks, "python"), "-c", set_up], cwd=notebooks, check=True)
    print(f"installed in {time.monotonic() - begun:.0f} s")
    frozen = subprocess.run(
        [program(notebooks, "python"), "-m", "pip", "freeze"], capture_output=True, text=True
    )
    assert set(TORCH) <= set(frozen.stdout.split()), "torch was replaced"
    failed = {}
    for page in sorted(notebooks.glob("*.ipynb")):
        command = [program(notebooks, "python"), "-c", RUN, page.name]
        done = subprocess.run(command, cwd=notebooks, capture_output=True, text=True)
        if done.returncode:
            failed[page.stem] = done.stderr[-1000:]
    assert not failed


def test_jupyterlab_shows_a_students_notebook_with_every_formula(notebooks, browser):
    page = nbformat.read(notebooks / "estimation.ipynb", 4)
    lab = [program(notebooks, "jupyter"), "lab", "--no-browser", "--allow-root", "--port=0"]
    lab += ["--IdentityProvider.token=key", f"--ServerApp.root_dir={notebooks}"]
    with subprocess.Popen(lab, stderr=subprocess.PIPE, text=True) as server:
        try:
            told = next(line for line in server.stderr if "http://localhost:" in line)
            address = re.search(r"http://localhost:\d+", told)[0]
            tab = browser.new_page()
            tab.set_default_timeout(120_000)
            tab.goto(f"{address}/lab/tree/estimation.ipynb?token=key")
            texts = [cell for cell in page.cells if cell.cell_type == "markdown"]
            shown = tab.locator(".jp-Notebook .jp-MarkdownCell.jp-mod-rendered")
            shown.nth(len(texts) - 1).wait_for(state="attached")
            formulas = sum(len(re.findall(r"\$\$.+?\$\$", cell.source, re.S)) for cell in texts)
            typeset = tab.locator('.jp-Notebook mjx-container[display="true"]')
            typeset.nth(formulas - 1).wait_for(state="attached")
            assert (shown.count(), typeset.count()) == (len(texts), formulas)
            assert not tab.locator("mjx-merror, [data-mjx-error], .jp-Dialog").count()
        finally:
            server.terminate()
