"""One kernel, run by papermill with our watch over it: which cell runs, how it ends, and that
nothing outlives it."""

import contextlib
import logging
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

from ipykernel.kernelspec import make_ipkernel_cmd
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.provisioning import KernelProvisionerBase
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from traitlets.config import Config

from cevit_lib.runner.notebook import code_cells

# the longest path of a socket is 104 bytes on macOS, 108 on Linux
_LONGEST_SOCKET = 100
# nbclient sends a shutdown request, after half of this SIGTERM, after the other half SIGKILL
_SHUTDOWN_SECONDS = 3.0
# what the kernel's client has to say is said by NotebookError, in words
_QUIET = logging.getLogger("cevit_lib.runner.kernel")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False
# a run that is stopped in mid-cell leaves a reply behind that is pending, or tells of the kernel's
# death to nobody: no reason for a traceback
logging.getLogger("asyncio").addFilter(
    lambda record: not re.search("was destroyed|never retrieved", record.getMessage())
)


class Stopped(KeyboardInterrupt):
    """A signal asked the runner to stop."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


class Watch:
    """What happens in one run: the running cell, the kernel's process group, and a line for each
    cell that ended; with ``relay`` also what cells print, such as how far a study's fits are."""

    def __init__(self, name: str, stream=None, relay: bool = False):
        self.name, self.stream, self.relay = name, stream or sys.stderr, relay
        self.total, self.number, self.line, self.started = 0, 0, "", 0.0
        self.kernel: KernelProvisionerBase | None = None
        self.last_words = ""

    def cell_started(self, cell, cell_index) -> None:
        lines = [line.strip() for line in cell.source.splitlines()]
        code = [line for line in lines if line and not line.startswith("#")]
        self.line = (code or lines or [""])[0]
        self.number += 1
        self.started = time.monotonic()

    def cell_executed(self, cell, cell_index, execute_reply) -> None:
        how = "FAILED after " if execute_reply["content"]["status"] == "error" else ""
        place = f"{self.name} [{self.number}/{self.total}]"
        took = f"{time.monotonic() - self.started:.1f} s"
        print(f"{place} {how}{took}  {self.line[:80]}", file=self.stream, flush=True)

    def end_of_kernel(self) -> str:
        """Say how the kernel's process ended."""
        process = getattr(self.kernel, "process", None)
        status = process.poll() if process is not None else None
        if status is not None and status >= 0:
            return f"its process ended with status {status}, as os._exit does"
        name = signal.Signals(-status).name if status else "SIGKILL"
        if name == "SIGKILL":
            return (
                "if nobody killed it, the machine most likely ran out of memory: use a smaller "
                "scale or batch"
            )
        return f"{name} ended it, a fault of compiled code: PYTHONFAULTHANDLER=1 shows where"

    def where(self) -> str:
        """Name the running cell as a reader finds it: by number and first line."""
        if not self.number:
            return "the start of the kernel"
        return f"code cell {self.number} of {self.total} ({self.line!r})"


class StrictClient(PapermillNotebookClient):
    """papermill's client with a kernel of this very Python, whatever kernels are installed where;
    it also tells the watch the kernel's process."""

    watch: Watch

    def create_kernel_manager(self):
        """Make the manager and name the kernel ourselves."""
        manager = super().create_kernel_manager()
        command = make_ipkernel_cmd()
        manager._kernel_spec = KernelSpec(argv=command, display_name="Python 3", language="python")
        return manager

    def process_message(self, msg, cell, cell_index):
        """Relay what a long run prints."""
        if self.watch.relay and msg["msg_type"] == "stream":
            print(msg["content"]["text"], end="", file=self.watch.stream, flush=True)
        return super().process_message(msg, cell, cell_index)

    def start_new_kernel(self, **kwargs):
        """Start the kernel and note its process (a kernel that is cut off here ends itself with
        its parent)."""
        super().start_new_kernel(**kwargs)
        self.watch.kernel = self.km.provisioner


class StrictEngine(NBClientEngine):
    """papermill's own engine with a socket transport that parallel runs share safely, and with our
    watch."""

    @classmethod
    def execute_managed_notebook(
        cls,
        nb_man,
        kernel_name,
        *,
        watch=None,
        env=None,
        kernel_folder=None,
        start_timeout=180,
        **papermill,
    ):
        """Run all cells; papermill calls this, with more than is of use here."""
        watch.total = len(code_cells(nb_man.nb))
        with tempfile.TemporaryDirectory(prefix="cevit-", ignore_cleanup_errors=True) as folder:
            client = StrictClient(
                nb_man,
                kernel_name=kernel_name,
                log=_QUIET,
                timeout=papermill.get("execution_timeout"),
                startup_timeout=start_timeout,
                config=_transport(Path(folder)),
                on_cell_execute=watch.cell_started,
                on_cell_executed=watch.cell_executed,
            )
            client.watch = watch
            # what the kernel's process itself prints is noise, unless it is the last thing that it
            # said
            with open(Path(folder) / "kernel.log", "w+b") as said:
                try:
                    return client.execute(env=env, cwd=kernel_folder, stdout=said, stderr=said)
                finally:
                    end_group(getattr(watch.kernel, "pgid", None))
                    said.seek(max(0, said.seek(0, os.SEEK_END) - 2000))
                    watch.last_words = " / ".join(
                        said.read().decode(errors="replace").split("\n")[-4:]
                    ).strip(" /")


def _transport(folder: Path) -> Config:
    """Return the kernel manager's settings: files of its own as sockets, so that no two runs race
    for a port."""
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
    """Turn SIGTERM, SIGINT and SIGHUP into ``Stopped``, once: a second signal must not cut the
    clean-up short."""
    asked, before = [], {}

    def stop(number, frame):
        if not asked:
            asked.append(number)
            raise Stopped(number)

    with contextlib.suppress(ValueError):  # not in the main thread: signals are its business
        for name in {"SIGTERM", "SIGINT", "SIGHUP"} & set(dir(signal)):
            number = getattr(signal, name)
            before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


papermill_engines.register("cevit", StrictEngine)
