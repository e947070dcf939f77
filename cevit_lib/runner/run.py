"""``cevit run``: papermill, strictly."""

import glob
import json
import os
import re
import secrets
import sys
from pathlib import Path

from cevit_lib.edge import check_output, read_mapping
from cevit_lib.errors import NotebookError, ParameterError
from cevit_lib.paths import project_root, sweep, why
from cevit_lib.runner.notebook import (
    code_cells,
    find_notebook,
    has_sentinel,
    notebook_parameters,
    read_notebook,
)
from cevit_lib.runner.parameters import coerce, unknown_parameter

NONCE = "CEVIT_RUN_NONCE"
HERE = Path(__file__).resolve().parents[1]
"""The folder of the library that runs."""


def join_pairs(arguments: list[str]) -> list[str]:
    """Join ``-p NAME VALUE`` into one word, so that a value like -1e-4 is not taken for an
    option."""
    joined, rest = [], iter(arguments)
    for word in rest:
        if word in ("-p", "--parameter"):
            name = next(rest, "")
            word = f"--parameter={name}" if "=" in name else f"--parameter={name}={next(rest, '')}"
        joined.append(word)
    return joined


def run_command(options) -> int:
    """Run what the command line asks for; return the exit status."""
    given: dict = {}
    for file in options.file:
        given |= read_mapping(Path(file), "the parameter file")
    for pair in options.parameter:
        name, given_value, value = pair.partition("=")
        if not given_value:
            raise ParameterError(f"--parameter {name!r}: give a name and a value, -p NAME VALUE.")
        given[name] = value
    if options.scale is not None:
        given["scale"] = options.scale
    limits = {"timeout": options.timeout, "start_timeout": options.start_timeout}
    output = run_notebook(options.notebook, given, output=options.output, **limits)
    print(f"{options.notebook}: finished, written to {output}", file=sys.stderr)
    return 0


def checked_parameters(declared: dict, given: dict) -> dict:
    """Return the given parameters in the types that the notebook declares.

    Raises
    ------
    ParameterError
        Names are unknown or values ill-typed; all faults are listed at once.
    """
    faults, values = [], {}
    for name, value in given.items():
        try:
            if name not in declared:
                raise ParameterError(unknown_parameter(name, declared))
            values[name] = coerce(name, value, declared[name][0])
        except ParameterError as error:
            faults.append(str(error))
    if faults:
        raise ParameterError("; ".join(faults))
    return values


def default_output(path: Path, values: dict, declared: dict) -> Path:
    """Return where a run goes that names no output: only a run of the page as it is declared
    replaces a page of the book."""
    scale = values.get("scale", declared.get("scale", (str, None))[1])
    own = all(value == declared[name][1] for name, value in values.items())
    folder = ("build", "smoke") if scale == "smoke" else ("book", "executed")
    return project_root().joinpath(*folder if own or scale == "smoke" else ("build", "run")) / (
        f"{path.stem}.ipynb"
    )


def run_notebook(
    notebook: str | os.PathLike,
    parameters: dict | None = None,
    *,
    output=None,
    timeout: float | None = None,
    start_timeout: float = 180,
    stream=None,
) -> Path:
    """Execute a notebook and put the result in place only if it finished.

    Parameters
    ----------
    notebook : str or path
        A page's name, or a ``.md`` or ``.ipynb`` file.
    parameters : dict, optional
        Values for names that the ``parameters`` cell declares; strings are read as the declared
        type.
    output : path, optional
        Default: ``book/executed/NAME.ipynb``. A failed run leaves it as it was and writes
        ``NAME.failed.ipynb`` beside it.
    timeout, start_timeout : float, optional
        Longest time in seconds for one cell, and for the kernel to start.
    stream : file, optional
        Where progress goes (default: standard error).

    Returns
    -------
    Path
        The executed notebook.

    Raises
    ------
    ParameterError
        A name is unknown or a value ill-typed; no kernel was started.
    NotebookError
        The notebook did not finish; the message names the cell and the fault.
    """
    path = find_notebook(str(notebook))
    source = read_notebook(path)
    declared = notebook_parameters(source, path.name)
    values = checked_parameters(declared, parameters or {})
    if not has_sentinel(source):
        raise NotebookError(
            f"{path.name}: the last code cell must call finished() (from cevit_lib.runner), "
            "or a run that stops early cannot be told from one that ends"
        )
    output = Path(output) if output else default_output(path, values, declared)
    output = output.expanduser().resolve()
    if output.suffix != ".ipynb":
        raise ParameterError(f"--output {output}: what is written is a notebook, NAME.ipynb.")
    check_output(output, "file", "--output", [path])
    failed = output.with_name(f"{output.stem}.failed.ipynb")
    temporary = output.with_name(f".{output.stem}.{os.getpid()}-{secrets.token_hex(4)}.ipynb")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        sweep(output.parent, f".{glob.escape(output.stem)}.*-*.ipynb")
        _execute(path, values, temporary, failed, (timeout, start_timeout), stream)
        os.replace(temporary, output)
        failed.unlink(missing_ok=True)
    except OSError as error:
        said = f"cannot write {output}: {why(error)}; what was there before is untouched"
        raise NotebookError(said) from error
    finally:
        if temporary.is_file() and temporary.stat().st_size:  # a full disk leaves an empty one
            os.replace(temporary, failed)
        temporary.unlink(missing_ok=True)
    return output


def _execute(path: Path, values: dict, temporary: Path, failed: Path, limits, stream) -> None:
    """Run to the end in ``temporary``, or raise ``NotebookError`` that names the cell."""
    import papermill
    from nbclient.exceptions import CellControlSignal

    from cevit_lib.runner.engine import Stopped, Watch, stop_on_signals

    nonce, root = secrets.token_hex(8), str(project_root())
    watch = Watch(path.stem, stream, relay=values.get("scale") == "paper")
    # the CUDA setting must be there before a kernel touches a GPU; a bar's ten thousand lines must
    # not be in a page
    env = {
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "TQDM_DISABLE": "1",
        "PYTHONWARNINGS": "ignore:IProgress not found",  # of a progress bar that no page shows
        **os.environ,
        "MATPLOTLIBRC": os.devnull,  # the reader's own settings are not the page's
        NONCE: nonce,
        "CEVIT_ROOT": root,
    }
    try:
        with stop_on_signals():
            notebook = papermill.execute_notebook(
                read_notebook(path),
                str(temporary),
                values,
                engine_name="cevit",
                kernel_name="python3",
                progress_bar=False,
                execution_timeout=limits[0],
                start_timeout=limits[1],
                watch=watch,
                env=env,
                kernel_folder=root,
            )
        _accept(notebook, nonce, temporary, path)
    # CellControlSignal: a timeout; RuntimeError: a kernel that died or did not start
    except (
        papermill.PapermillExecutionError,
        CellControlSignal,
        RuntimeError,
        Stopped,
    ) as error:
        kept = f". The notebook up to there is {failed}" if temporary.is_file() else ""
        said = _explain(error, watch, limits[0])
        failure = NotebookError(f"{path.name} did not finish: {said}{kept}")
        failure.exit_status = 128 + error.number if isinstance(error, Stopped) else 1
        raise failure from None


def _explain(error: BaseException, watch, timeout) -> str:
    """Say in one sentence what ended a run, and in which cell."""
    said = f" (it said: {watch.last_words[-300:]})" if watch.last_words else ""
    match type(error).__name__:
        case "PapermillExecutionError":
            return f"{watch.where()} raised {error.ename}: {error.evalue}"
        case "CellTimeoutError":
            return f"{watch.where()} ran longer than --timeout {timeout:g} s and was ended"
        case "Stopped":
            return f"stopped by {error} in {watch.where()}; the kernel was ended"
        case "NotebookError":
            return str(error)
        case _ if watch.number:
            return f"the kernel died in {watch.where()}; {watch.end_of_kernel()}{said}"
        case kind:
            return (
                f"the kernel did not start: {kind}: {error}{said}; where the file system is slow, "
                "give it longer by --start-timeout SECONDS"
            )


def _accept(notebook, nonce: str, temporary: Path, path: Path) -> None:
    """Believe in the end only where the last cell printed the nonce, and in the page only where our
    library ran it; then forget the nonce and this machine's paths."""
    import nbformat

    last = code_cells(notebook)[-1]
    printed = "".join(output.get("text", "") for output in last.get("outputs", []))
    said = re.search(rf"finished {nonce} (.*)", printed)
    if said is None:
        raise NotebookError(
            "it stopped before its last cell, finished(), although every cell that ran succeeded "
            "(an exit() or quit()?)"
        )
    live = json.loads(said[1])
    if live["library"] != str(HERE):
        raise NotebookError(
            f"its cells imported cevit_lib from {live['library']}, this command is of {HERE}; run "
            "it by the cevit of that folder's environment"
        )
    last.outputs = []
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell["id"] = "injected-parameters"
    notebook.metadata.papermill.update(
        input_path=path.name,
        output_path=None,
        environment_variables={},
        parameters=live["parameters"],  # as they were when the work began, not as they were given
    )
    temporary.write_text(nbformat.writes(notebook) + "\n", "utf-8")
