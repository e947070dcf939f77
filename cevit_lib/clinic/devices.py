"""The place of a fit on one of several devices of a machine."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

WAIT_SECONDS = 0.5


@contextlib.contextmanager
def claim(devices: str | None, share: int = 1, folder: Path | None = None) -> Iterator[str | None]:
    """Hold one place on one of several devices, named by commas; wait while all are taken.

    A place is a lock on a file, which the system lets go when its process ends in whatever way: a
    killed job leaves no device behind. One device alone, with ``share=1`` and no comma, is used
    without asking.

    Parameters
    ----------
    devices : str or None
        ``"cuda:0,cuda:1"``, or a single name; None where any will do.
    share : int
        Fits that may use one device at the same time.
    folder : path, optional
        Of the locks; default the machine's temporary folder, as devices belong to a machine.
    """
    names = [name.strip() for name in (devices or "").split(",") if name.strip()]
    if not names or (len(names) == 1 and share == 1):
        yield names[0] if names else None
        return
    from filelock import FileLock, Timeout  # torch needs it, too

    folder = folder or Path(tempfile.gettempdir()) / f"cevit-devices-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True)
    places = [
        (name, FileLock(folder / f"{name.replace(':', '-')}.{slot}"))
        for slot in range(share)  # the emptiest device first
        for name in names
    ]
    while True:
        for name, place in places:
            with contextlib.suppress(Timeout), place.acquire(blocking=False):
                yield name
                return
        time.sleep(WAIT_SECONDS)
