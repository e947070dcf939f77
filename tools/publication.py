"""What is published beside the pages: notebooks for students and Colab, slides, a PDF, archives.

Commands, each a word after ``python -m tools.publication``::

    student              build/student/, chapters without solutions and what they need, and its zip
    slides               build/slides/*.html, with figures of executed pages; they work offline
    pdf                  _build/cevit.pdf; needs a built book and Chromium
    colab owner/name     build/colab/*.ipynb, each with a set-up cell
    assets               build/release/*.zip: executed notebooks, records
"""

from __future__ import annotations

import argparse
import html
import os
import re
import shutil
import sys
from pathlib import Path

import yaml

from cevit_lib import __version__
from cevit_lib.edge import guarded
from cevit_lib.errors import NotebookError
from cevit_lib.paths import project_root
from tools.crate import records_crate
from tools.handout import write_handouts, write_student, write_variants
from tools.pages import EXECUTED, alone, jupyter_book
from tools.teaching import write_slides

_FOOT = (
    '<div style="font-size:8px;width:100%;text-align:center">'
    f'Version {__version__} · <span class="pageNumber"></span></div>'
)


def write_assets(folder: Path) -> list[Path]:
    """Write the archives of a release: notebooks as executed for the book, and all records as an
    RO-Crate.

    Raises
    ------
    NotebookError
        The book was not built, so that there are no executed notebooks.
    """
    root = project_root()
    _need_executed(root)
    base, crate = (folder / f"cevit-{__version__}-{name}" for name in ("notebooks", "records.zip"))
    notebooks = shutil.make_archive(str(base), "zip", root, EXECUTED)
    records_crate(root).write_zip(crate)
    return [Path(notebooks), crate]


def _need_executed(root: Path) -> None:
    if not any((root / EXECUTED).glob("*.ipynb")):
        raise NotebookError("there are no executed notebooks in book/executed; run make book first")


def browser_path() -> str | None:
    """Return the program of an installed Chromium (``CEVIT_CHROMIUM`` names another), or None."""
    named = os.environ.get("CEVIT_CHROMIUM")
    names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    return next(filter(None, map(shutil.which, [named] if named else names)), None)


def one_page() -> Path:
    """Build the whole book as one HTML file and return it.

    Raises
    ------
    NotebookError
        It was not written; the message ends with what Sphinx said.
    """
    root = project_root()
    done = jupyter_book(root, "--builder", "singlehtml", "-q", "--all")
    folder = root / "_build" / "singlehtml"
    written = folder / "book" / "preface.html"
    if done.returncode or not written.is_file():
        raise NotebookError(
            "the book was not written as one page:\n" + (done.stdout + done.stderr)[-3000:]
        )
    page = folder / "cevit.html"  # addresses are as seen from here, the file lay one folder below
    page.write_text(with_front_page(written.read_text(encoding="utf-8")), encoding="utf-8")
    return page


def front_page() -> str:
    """Return the title page of the PDF: version, authors, licence, and the paper with its DOI."""
    root = project_root()
    citation = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    book = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    paper = citation["references"][0]
    people = ", ".join(f"{each['given-names']} {each['family-names']}" for each in paper["authors"])
    title, _, subtitle = citation["title"].partition(": ")
    lines = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{html.escape(subtitle[:1].upper() + subtitle[1:])}</p>",
        f"<p>{html.escape(book['author'])}<br>Version {__version__}</p>",
        f"<p>The paper: {html.escape(people)}. "
        f"<em>{html.escape(paper['title'])}</em>, {paper['year']}.<br>"
        f'<a href="https://doi.org/{paper["doi"]}">doi.org/{paper["doi"]}</a></p>',
        f"<p>© {html.escape(book['copyright'])}.<br>Not for clinical use.</p>",
    ]
    return f'<div id="cevit-front">{"".join(lines)}</div>'


def with_front_page(text: str) -> str:
    """Put the title page before the contents, in place of the theme's bare title."""
    return re.sub(
        r'(<div id="jb-print-docs-body"[^>]*>)\s*<h1>.*?</h1>',
        lambda found: found[1] + front_page(),
        text,
        count=1,
        flags=re.DOTALL,
    )


def write_pdf(target: Path) -> Path:
    """Print the book to one PDF with a title page, contents, numbered pages, bookmarks and tags.

    Raises
    ------
    NotebookError
        Chromium or playwright is missing, or the book was not built; the message says how to get
        it.
    """
    browser = browser_path()
    if browser is None:
        raise NotebookError(
            "the PDF is printed by Chromium, and none was found: install it (Debian and Ubuntu: "
            "apt-get install chromium) or name the program in CEVIT_CHROMIUM"
        )
    from playwright.sync_api import sync_playwright

    _need_executed(project_root())
    page, target = one_page(), Path(target)
    width, scale = 210 - 2 * 16, 0.8  # of the sheet between its margins, in mm
    screen = {"width": round(width / 25.4 * 96 / scale), "height": 1200}
    with sync_playwright() as driver:
        running = driver.chromium.launch(
            executable_path=browser, args=["--no-sandbox", "--disable-gpu"]
        )
        tab = running.new_page(color_scheme="light", viewport=screen)
        tab.set_default_timeout(300_000)
        tab.goto(page.as_uri())
        tab.evaluate("() => window.MathJax?.startup?.promise")
        tab.emulate_media(media="print")
        tab.add_script_tag(path=Path(__file__).with_suffix(".js"))
        tab.evaluate("fitForPaper()")
        tab.pdf(
            path=target,
            format="A4",
            scale=scale,
            display_header_footer=True,
            header_template="<span></span>",
            footer_template=_FOOT,
            margin={side: "16mm" for side in ("top", "right", "bottom", "left")},
            tagged=True,
            outline=True,
            print_background=True,
        )
        running.close()
    return target


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    root, public = project_root(), os.environ.get("CEVIT_REPOSITORY") or None
    parser = argparse.ArgumentParser(
        prog="python -m tools.publication", description=__doc__.splitlines()[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, make in {
        "student": lambda given: write_student(root / "build" / "student", public),
        "slides": lambda given: write_slides(root / "build" / "slides", public),
        "pdf": lambda given: [write_pdf(root / "_build" / "cevit.pdf")],
        "colab": lambda given: write_handouts(
            root / "build" / "colab", given.repository, solutions=True
        ),
        "variants": lambda given: write_variants(root / "build" / "variants", given.seed, public),
        "assets": lambda given: write_assets(root / "build" / "release"),
    }.items():
        commands.add_parser(name).set_defaults(make=make)
    commands.choices["colab"].add_argument("repository", help="owner/name of the public repository")
    commands.choices["variants"].add_argument("seed", type=int, help="another seed, other numbers")
    given = parser.parse_args(arguments)

    def work() -> int:
        for path in given.make(given):
            print(path.relative_to(root))
        return 0

    return guarded("python -m tools.publication", lambda: alone(work), refused=1)


if __name__ == "__main__":
    sys.exit(main())
