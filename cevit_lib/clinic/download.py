"""The command ``cevit download``: GRAPE, PAPILA or UWHVF from their archives, going on where it
stopped, with checksums.

What is not known here is asked of the archive: the items of a collection, their files, sizes and
checksums.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pooch
import requests

from cevit_lib.errors import DataError

API = "https://api.figshare.com/v2"  # the archive of GRAPE and PAPILA
CHUNK = 2**16  # bytes read at a time, lost when the line is cut
WAIT = 30  # seconds until an archive that says nothing counts as absent


#: Data set -> DOI of the whole, terms as far as they are known, what its loader looks for,
#: checksums of files of which a copy was at hand, and the number of its collection or article in
#: the archive, or its files where no archive lists them.
SOURCES: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("sources.json").read_text("utf-8")
)


class Item(NamedTuple):
    """One file of an archive; ``checksum`` is ``None`` where nobody knows one."""

    name: str
    size: int
    url: str
    checksum: str | None
    title: str = ""


def run_download(options: argparse.Namespace) -> int:
    """Fetch what is not there yet; return 0 when all of it is."""
    name, source = options.name, SOURCES[options.name]
    folder, patterns = target_folder(name, options.folder), options.only or ["*"]
    items = list_items(source, folder)
    items = [one for one in items if any(fnmatch(one.name, pattern) for pattern in patterns)]
    if not items:
        raise DataError(f"no file of {name} is called {' or '.join(patterns)}; see --list.")
    print(f"{name}: https://doi.org/{source['doi']}\nterms: {source['terms']}")
    for item in items:
        known = item.checksum or "no checksum known"
        print(f"  {item.name}  {item.size / 1e6:.1f} MB  {known}  {item.title}".rstrip())
    if options.list:
        return 0
    for item in items:
        fetch(item, source, folder)
        if item.name.endswith((".rar", ".7z")):
            print(f"  {item.name}: unpack it in {folder}, for example with 'unar' or '7z x'")
    print(f"{name} is in {folder}; the loader looks for {source['wanted']}")
    return 0


def target_folder(name: str, given: Path | None) -> Path:
    """Return where a data set goes.

    Raises
    ------
    DataError
        Neither a folder is given nor CEVIT_DATA set.
    """
    root = os.environ.get("CEVIT_DATA")
    if given is None and not root:
        raise DataError(
            f"where to? give --folder FOLDER, or set CEVIT_DATA: {name} then goes into its "
            f"subfolder {name}, where its loader looks."
        )
    return (given or Path(root) / name).expanduser()


def list_items(source: dict[str, Any], folder: Path) -> list[Item]:
    """Return the files of a source with the archive's checksums, or ours where there is one."""
    if "files" in source:
        return [Item(**each) for each in source["files"]]
    articles = [{"id": source.get("article")}]
    if "collection" in source:
        articles = _ask(f"collections/{source['collection']}/articles", source, folder)
    known = source["checksums"]
    items = []
    for part in articles:
        for entry in _ask(f"articles/{part['id']}/files", source, folder):
            # a name, never a path that leads elsewhere
            name = Path(str(entry["name"]).replace("\\", "/")).name
            digest = entry.get("computed_md5") or entry.get("supplied_md5")
            checksum = known.get(name) or (f"md5:{digest}" if digest else None)
            title = str(part.get("title", ""))
            items.append(Item(name, int(entry["size"]), entry["download_url"], checksum, title))
    return items


def fetch(item: Item, source: dict[str, Any], folder: Path) -> None:
    """Fetch a file unless it is there; an interrupted one goes on where it stopped. What a zip file
    holds is unpacked into a folder of its own, so that nothing of anybody is replaced.

    Raises
    ------
    DataError
        A file of that name is another one (it is left as it is), the checksum is wrong, or the line
        is cut.
    """
    path = folder / item.name
    algorithm, _, digest = (item.checksum or "").partition(":")
    if path.exists() and digest and pooch.file_hash(str(path), alg=algorithm) != digest:
        raise DataError(
            f"{path} exists and is another file (the archive's has {item.checksum}); it is left as "
            "it is: move it away, or give another --folder."
        )
    pooch.get_logger().setLevel("ERROR")  # what it says is said here in sentences
    told = "is there" if path.exists() else "fetched"
    how = {"downloader": resuming(folder / f"{item.name}.part", item)}
    if item.name.endswith(".zip"):
        how["processor"] = pooch.Unzip()
    try:
        pooch.retrieve(item.url, item.checksum, item.name, folder, **how)
    except ValueError as error:
        said = " ".join(str(error).split())
        raise DataError(
            f"{item.name} came with a wrong checksum, nothing is kept of it: {said}"
        ) from None
    except (requests.RequestException, ConnectionError, TimeoutError) as error:
        what = f"{item.name} stopped, the same command goes on from there"
        raise DataError(_offline(source, folder, error, what)) from None
    print(f"  {item.name}: {told}")


def resuming(part: Path, item: Item) -> Callable[[str, Any, Any], None]:
    """Return a downloader of pooch that keeps what came in a ``.part`` file and asks for the rest
    only.
    """

    def download(url: str, output_file: Any, pooch: Any) -> None:
        part.parent.mkdir(parents=True, exist_ok=True)
        have = part.stat().st_size if part.exists() else 0
        if have < item.size or not have:
            headers = {"Range": f"bytes={have}-"} if have else {}
            with requests.get(url, headers=headers, stream=True, timeout=WAIT) as answer:
                answer.raise_for_status()
                goes_on = have and answer.status_code == 206  # otherwise it sends the whole again
                with part.open("ab" if goes_on else "wb") as file:
                    file.writelines(answer.iter_content(CHUNK))
        if part.stat().st_size < item.size:
            raise ConnectionError(f"{part.stat().st_size} of {item.size} bytes came")
        os.replace(part, output_file)

    return download


def _ask(what: str, source: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Return an answer of the archive, decoded."""
    try:
        answer = requests.get(f"{API}/{what}?page_size=1000", timeout=WAIT)
        answer.raise_for_status()
        return answer.json()
    except (requests.RequestException, ValueError) as error:
        raise DataError(_offline(source, folder, error, "the archive cannot be asked")) from None


def _offline(source: dict[str, Any], folder: Path, error: object, what: str) -> str:
    """Say what to fetch by hand and where to put it."""
    reason = " ".join(str(error).split())
    known = "; ".join(f"{name} has {digest}" for name, digest in source["checksums"].items())
    return (
        f"{what} ({reason[:160]}). By hand, from any machine with internet: open "
        f"https://doi.org/{source['doi']}, fetch all files, and put them into {folder}, so that "
        f"there are {source['wanted']}. Compare checksums: {known or 'none is known here'}; those "
        "of the other files stand on their pages."
    )
