"""One kernel, run by papermill with our watch over it: which cell runs, how it ends, and that nothing outlives it."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from jupyter_core.utils import ensure_event_loop
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from traitlets.config import Config

# the longest path of a socket is 104 bytes on macOS, 108 on Linux
_LONGEST_SOCKET = 100
# nbclient sends a shutdown request, after half of this SIGTERM, after the other half SIGKILL
_SHUTDOWN_SECONDS = 3.0
# what the kernel's client has to say is said by NotebookError, in words
_QUIET = logging.getLogger("cevit_lib.runner.kernel")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


class Stopped(KeyboardInterrupt):
    """A signal asked the runner to stop."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


class Watch:
    """What happens in one run: the running cell, the kernel's process group, and the lines of progress."""

    def __init__(self, name: str, stream=None):
        self.name, self.stream = name, stream or sys.stderr
        self.total, self.number, self.line, self.started = 0, 0, "", 0.0
        self.group: int | None = None
        self.last_words = ""

    def cell_started(self, cell, cell_index) -> None:
        self.number += 1
        self.line = first_line(cell.source)
        self.started = time.monotonic()
        if self.stream.isatty():
            self._write(f"\r\033[K{self.name} [{self.number}/{self.total}] {self.line[:60]}")

    def cell_executed(self, cell, cell_index, execute_reply) -> None:
        seconds = time.monotonic() - self.started
        failed = execute_reply["content"]["status"] == "error"
        if not self.stream.isatty():
            self._write(
                f"{self.name} [{self.number}/{self.total}] {'FAILED after ' if failed else ''}{seconds:.1f} s"
                f"  {self.line[:80]}\n"
            )

    def ended(self) -> None:
        if self.stream.isatty():
            self._write("\r\033[K")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()

    def where(self) -> str:
        """Name the running cell as a reader finds it: by number and first line."""
        return (
            f"code cell {self.number} of {self.total} ({self.line!r})"
            if self.number
            else "the start of the kernel"
        )


def first_line(source: str) -> str:
    """Return the first line of a cell that is code."""
    lines = [line.strip() for line in source.splitlines()]
    return next(
        (line for line in lines if line and not line.startswith("#")), lines[0] if lines else ""
    )


class StrictClient(PapermillNotebookClient):
    """papermill's client, which also tells the watch the kernel's process group and can be stopped in mid-cell."""

    watch: Watch

    def start_new_kernel(self, **kwargs):
        """Start the kernel and note its process group (a kernel that is cut off here ends itself with its parent)."""
        super().start_new_kernel(**kwargs)
        self.watch.group = getattr(self.km.provisioner, "pgid", None)

    def papermill_execute_cells(self):
        """Run all cells; a signal drops the pending reply, so that asyncio does not complain about it at the end."""
        try:
            super().papermill_execute_cells()
        except Stopped:
            loop = ensure_event_loop()
            pending = asyncio.all_tasks(loop)
            for task in pending:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            raise


class StrictEngine(NBClientEngine):
    """papermill's own engine with a socket transport that parallel runs share safely, and with our watch."""

    @classmethod
    def execute_managed_notebook(
        cls,
        nb_man,
        kernel_name,
        *,
        watch=None,
        env=None,
        kernel_folder=None,
        start_timeout=60,
        execution_timeout=None,
        **ignored,
    ):
        """Run all cells; papermill calls this."""
        watch.total = sum(
            cell.cell_type == "code" and bool(cell.source.strip()) for cell in nb_man.nb.cells
        )
        with tempfile.TemporaryDirectory(prefix="cevit-", ignore_cleanup_errors=True) as folder:
            client = StrictClient(
                nb_man,
                kernel_name=kernel_name,
                log=_QUIET,
                timeout=execution_timeout,
                startup_timeout=start_timeout,
                config=_transport(Path(folder)),
                on_cell_execute=watch.cell_started,
                on_cell_executed=watch.cell_executed,
            )
            client.watch = watch
            # what the kernel's process itself prints is noise, unless it is the last thing that it said
            with open(Path(folder) / "kernel.log", "w+b") as said:
                try:
                    return client.execute(env=env, cwd=kernel_folder, stdout=said, stderr=said)
                finally:
                    end_group(watch.group)
                    said.seek(max(0, said.seek(0, os.SEEK_END) - 2000))
                    watch.last_words = " / ".join(
                        said.read().decode(errors="replace").split("\n")[-4:]
                    ).strip(" /")


def _transport(folder: Path) -> Config:
    """Return the kernel manager's settings: files of its own as sockets, so that no two runs race for a port."""
    config = Config()
    config.KernelManager.shutdown_wait_time = _SHUTDOWN_SECONDS
    config.KernelManager.connection_file = str(folder / "k.json")
    if os.name != "nt" and len(str(folder)) + len("/k-ipc-5") <= _LONGEST_SOCKET:
        config.KernelManager.transport = "ipc"
    return config


def end_group(group: int | None) -> None:
    """End what the kernel left behind, such as workers that load data."""
    if group and hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


@contextlib.contextmanager
def stop_on_signals():
    """Turn SIGTERM, SIGINT and SIGHUP into ``Stopped``, once: a second signal must not cut the clean-up short."""
    asked = []

    def stop(number, frame):
        if not asked:
            asked.append(number)
            raise Stopped(number)

    names = [name for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]
    try:
        before = {name: signal.signal(getattr(signal, name), stop) for name in names}
    except ValueError:  # not in the main thread: signals are the business of whoever is
        before = {}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


papermill_engines.register("cevit", StrictEngine)
