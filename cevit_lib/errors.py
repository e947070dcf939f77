"""Errors and warnings: each message says what was seen, what was expected and what to do."""


class CevitError(Exception):
    """Base of every error that the library raises on purpose."""


class ShapeError(CevitError, ValueError):
    """An array has the wrong shape; the message names both shapes."""


class LabelError(CevitError, ValueError):
    """A binary response is not 0, 1 or NaN; the message names the row."""


class ScaleError(CevitError, ValueError):
    """A standard deviation is not positive and finite."""


class NotPositiveDefiniteError(CevitError, ValueError):
    """A correlation matrix is not positive definite; the message gives its smallest eigenvalue."""


class ParameterError(CevitError, ValueError):
    """A notebook or command parameter is unknown, ill-typed or out of range."""


class DataError(CevitError, ValueError):
    """A table, image or data folder cannot be used; the message names the place."""


class ProvenanceError(CevitError, RuntimeError):
    """A record is dirty, smoke, outdated, invalid or missing; a page needs one that is not."""


class OutputError(CevitError, OSError):
    """What is to be written cannot be; the message names it and says what is left as it was."""


class TrainingError(CevitError, RuntimeError):
    """A fit collapsed or diverged; the message names epoch, batch and likely cause."""


class NotebookError(CevitError, RuntimeError):
    """A notebook did not finish; the message names the cell."""


class NotConvergedWarning(UserWarning):
    """An estimator stopped before its tolerance was met; the message names a remedy."""


class NearSingularWarning(UserWarning):
    """An estimated correlation matrix has its smallest eigenvalue below 1e-3."""


class EstimateKeptWarning(UserWarning):
    """An estimate along the way failed; training goes on under the last good one."""


class WronglyCompiledWarning(UserWarning):
    """What was compiled of a network is not the network; training goes on uncompiled."""


class FrozenRandomWeightsWarning(UserWarning):
    """LoRA was put on frozen weights that were drawn at random and never trained."""


class WeightsWarning(UserWarning):
    """Part of a file of weights was left out, or nothing says how its images were normalised."""
