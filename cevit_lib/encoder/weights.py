"""A file of weights as a backbone's tensors: of which family it is, what of it is pretraining's
alone, and where it does not fit."""

import contextlib
import hashlib
import io
import re
import sys
import warnings
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cevit_lib.errors import DataError, WeightsWarning

#: ImageNet's mean and SD, by which these families normalise (RETFound, whose photographs are of
#: eyes, does so in its own code).
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
#: What only files of a family hold -> the family.
FAMILIES = {
    "decoder_": "MAE",
    "fc_norm.": "MAE, fine-tuned",
    "storage_tokens": "DINOv3",
    "mask_token": "DINOv2",
    "register_tokens": "DINOv2",
}
_OF_PRETRAINING = re.compile(r"decoder_|(dino|ibot)_head\.|head\.")
_KINDS = {b"<": "a web page", b"%PDF": "a PDF", b"{": "JSON", b"version https://git-lfs": "a link"}


@dataclass(frozen=True)
class Weights:
    """What a file holds for a backbone.

    Attributes
    ----------
    path : Path
    tensors : dict of str to Tensor
        By the names that the file's family gives them.
    left_out : tuple of str
        Names of what serves pretraining alone: an MAE's decoder, heads.
    family : str or None
        ``None`` where nothing tells timm's own files from others.
    """

    path: Path
    tensors: dict[str, Tensor]
    left_out: tuple[str, ...]
    family: str | None

    @property
    def pooled(self) -> bool:
        """Whether it was fine-tuned on the mean of the patches (``fc_norm``), not the class
        token."""
        return "fc_norm.weight" in self.tensors and "norm.weight" not in self.tensors

    @property
    def origin(self) -> str:
        """One line that says where the weights come from."""
        with self.path.open("rb") as stream:  # another machine has the file elsewhere
            digits = hashlib.file_digest(stream, "sha256").hexdigest()[:16]
        return f"file sha256 {digits}" + (f", {self.family}" if self.family else "")


def read_weights(path: Path) -> Weights:
    """Return the tensors of a ``.pth`` or ``.safetensors`` file; it can run no code.

    Raises
    ------
    DataError
        It is of another kind, cut off or empty; the message says what it is.
    """
    from timm.models import load_state_dict

    with path.open("rb") as stream:
        head = stream.read(64).lstrip()
    kind = next((kind for mark, kind in _KINDS.items() if head.startswith(mark)), None)
    if kind or not head:
        raise DataError(
            f"weights {path} are no weights but {kind or 'an empty file'}; fetch the file itself."
        )
    try:
        content = load_state_dict(str(path), weights_only=True)
        content = content.get("teacher", content)  # DINOv2's training state, RETFound's second one
        tensors = {
            name.removeprefix("backbone."): value
            for name, value in content.items()
            if isinstance(value, Tensor)
        }
    except Exception as error:  # a torn file, or one of another kind, fails in many ways
        raise DataError(
            f"weights {path} cannot be read ({type(error).__name__}): the file is cut off, or no "
            "state dictionary of tensors (.pth, .safetensors); fetch it again."
        ) from error
    if not tensors:
        raise DataError(f"weights {path} hold no tensor; give the file of a state dictionary.")
    marks = [mark for mark in FAMILIES if any(name.startswith(mark) for name in tensors)]
    family = FAMILIES[marks[0]] if marks else "DINOv2" if "teacher" in content else None
    left_out = [name for name in tensors if _OF_PRETRAINING.match(name)]
    if family == "MAE":  # timm takes a mask token for DINOv2's
        left_out += [name for name in tensors if name == "mask_token"]
    kept = {name: tensor for name, tensor in tensors.items() if name not in left_out}
    return Weights(path, kept, tuple(left_out), family)


def load_weights(model: nn.Module, weights: Weights) -> None:
    """Put a file's tensors into a timm Vision Transformer, in place, each of them; positions and
    patches of another size are interpolated as timm does it.

    Raises
    ------
    DataError
        Some are missing, unknown, of another shape or type or not finite; the message counts them.
    """
    fitted = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # timm prints the biases that it leaves out
            found = fitted(dict(weights.tensors), model) if fitted else weights.tensors
    except Exception as error:  # tensors of a shape that no Vision Transformer has
        raise DataError(
            f"weights {weights.path} do not fit the backbone ({type(error).__name__}); was the "
            "file made for another model?"
        ) from error
    own, lost = model.state_dict(), "biases of Q and V, for which it has no place (NAME_qkvb has)"
    faults = misfits(own, found, own.keys())
    faults[lost] = {
        name
        for name, tensor in weights.tensors.items()
        if weights.family == "DINOv3"
        and name.endswith("qkv.bias")
        and name.replace("qkv.bias", "q_bias") not in own
        and tensor.nan_to_num().any()
    }
    if told := counted(faults):
        raise DataError(
            f"weights {weights.path} do not fit the backbone: of its {len(own)} tensors {told}. "
            "Was the file made for another model?"
        )
    model.load_state_dict(found)
    if of_pretraining := [name for name in weights.left_out if not name.startswith("head.")]:
        warnings.warn(
            f"weights {weights.path.name}: {len(of_pretraining)} tensors that serve pretraining "
            f"alone ({of_pretraining[0]}, ...) are left out",
            WeightsWarning,
            stacklevel=3,
        )


def misfits(
    own: dict[str, Tensor], found: dict[str, Any], expected: Set[str]
) -> dict[str, set[str]]:
    """Return by kind of fault the names of stored tensors that a network cannot take, and of those
    that it lacks.

    Parameters
    ----------
    own : dict
        The network's state dictionary.
    found : dict
        What a file holds.
    expected : set of str
        Names of all that it should hold.
    """
    shared = own.keys() & found.keys()
    shapes = {name for name in shared if getattr(found[name], "shape", None) != own[name].shape}
    return {
        "missing": expected - found.keys(),
        "unknown": found.keys() - expected,
        "of another shape": shapes,
        "not finite": {name for name in shared - shapes if not found[name].isfinite().all()},
        "of another type": {  # whole numbers of a quantised file mean something else
            name
            for name in shared - shapes
            if found[name].is_floating_point() != own[name].is_floating_point()
        },
    }


def counted(faults: dict[str, set[str]]) -> str:
    """Return ``3 missing, such as heads.bias; 1 unknown, such as other``, or nothing."""
    seen = {kind: names for kind, names in faults.items() if names}
    return "; ".join(f"{len(names)} {kind}, such as {min(names)}" for kind, names in seen.items())
