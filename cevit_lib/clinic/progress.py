"""How far a fit is: a bar on a terminal, a line an epoch in a log, both with the time that is left.

Training logs its epochs and estimators their iterations, as ``(name, done, of how many)``; this
listens. An estimator's iterations are shown and not counted: how many it needs nobody knows.
"""

from __future__ import annotations

import contextlib
import io
import logging
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any, TextIO

from tqdm import tqdm

from cevit_lib.clinic.options import ARMS
from cevit_lib.training import PAPER_COPULA, PAPER_WARM_UP

CROSS_FITS = 3  # further warm-ups of a fold whose estimate is cross-fitted
PAUSE = 1.0  # seconds between two lines of a log, but for a stage's last epoch


def stages_of(configuration: dict[str, Any]) -> dict[str, int]:
    """Return the stages of one fold with their epochs, in their order."""
    epochs = {stage: recipe["epochs"] for stage, recipe in configuration["recipes"].items()}
    crossed = CROSS_FITS * (configuration["estimate_on"] == "cross-fitted")
    if configuration["preset"] == "paper":
        epochs, crossed = {"warm_up": PAPER_WARM_UP.epochs, "copula": PAPER_COPULA.epochs}, 0
    if "one_stage" in epochs:
        return dict.fromkeys(("one stage", ARMS[1]), epochs["one_stage"])
    first, further = epochs["warm_up"], epochs["copula"]
    crosses = {f"cross-fit {number + 1}": first for number in range(crossed)}
    return {"warm-up": first, **crosses, "copula": further, ARMS[1]: further}


class Watch(logging.Handler):
    """Shows where a command with several folds is.

    Parameters
    ----------
    folds : int
    stages : dict of str to int
        Epochs of each stage of a fold, in their order.
    stream : text stream
        A terminal gets a bar (tqdm), anything else lines.
    """

    def __init__(self, folds: int, stages: dict[str, int], stream: TextIO | None = None) -> None:
        super().__init__(logging.INFO)
        self.stream, self.stages = stream or sys.stderr, stages
        self.before, self.name, self.told = 0, "", 0.0
        self.terminal = self.stream.isatty()
        size = shutil.get_terminal_size()  # 80 by 24 where a terminal tells none
        further = " {percentage:3.0f}%|{bar}|" if self.terminal else ""
        self.bar = tqdm(
            total=folds * sum(stages.values()),
            file=self.stream if self.terminal else io.StringIO(),
            ncols=size.columns if self.terminal else None,
            nrows=size.lines,
            bar_format="{desc}; {remaining} left" + further,
            smoothing=0,
            leave=False,
            delay=1e-9,
            disable=False,  # TQDM_DISABLE silences other bars; this one counts
        )

    @contextlib.contextmanager
    def fold(self, name: str) -> Iterator[None]:
        """Show a fold by its name; afterwards it counts as done, whatever it did."""
        self.name = name
        try:
            yield
        finally:
            self.before += sum(self.stages.values())
            self.bar.clear()  # a line on the fold comes next

    def emit(self, record: logging.LogRecord) -> None:
        stage, done, of = record.args
        text = f"iteration {done} of at most {of}"
        if stage in self.stages:
            names = list(self.stages)
            earlier = sum(self.stages[name] for name in names[: names.index(stage)])
            place = self.before + earlier + done
            self.bar.initial += place - self.bar.n - 1  # what was there already took no time
            self.bar.n = place
            text = f"epoch {done} of {of}{getattr(record, 'said', '')}"
        self.bar.set_description_str(f"{self.name}: {stage}, {text}", refresh=self.terminal)
        ended = stage in self.stages and done == of
        if not self.terminal and (ended or time.monotonic() - self.told >= PAUSE):
            print(self.bar, file=self.stream, flush=True)
            self.told = time.monotonic()

    def close(self) -> None:
        self.bar.close()
        super().close()


@contextlib.contextmanager
def watching(folds: int, stages: dict[str, int], shown: bool = True) -> Iterator[Watch]:
    """Let a watch listen to the library inside the block; a process that shows nothing only
    counts.
    """
    watch, logger = Watch(folds, stages), logging.getLogger("cevit_lib")
    level = logger.level
    if shown:
        logger.addHandler(watch)
        logger.setLevel(logging.INFO)
    try:
        yield watch
    finally:
        logger.removeHandler(watch)
        logger.setLevel(level)
        watch.close()
