r"""Orthant probabilities in three and four dimensions by one-dimensional integrals (Plackett's
identity).

With ``R(t)`` the correlation matrix whose first row and column are multiplied by ``t`` off the
diagonal (positive definite for ``0 <= t <= 1``, block-diagonal at 0), ``d Phi_p / d r_0j =
phi_2(z_0, z_j) Phi_{p-2}(rest | 0, j)`` gives

    Phi_p(z; R) = Phi(z_0) Phi_{p-1}(z_1, ...)
                  + int_0^1 sum_j r_0j phi_2(z_0, z_j; t r_0j) Phi_{p-2}(rest | 0, j; R(t)) dt.

``t = sin(pi u / 2)`` removes the root at ``t = 1`` of a nearly singular matrix. The accuracy is
absolute, about 1e-16.
"""

import math

import torch
from torch import Tensor

from cevit_lib.normal.bivariate import absolute_probability
from cevit_lib.normal.central import gauss_nodes
from cevit_lib.normal.lattice import reordered
from cevit_lib.normal.univariate import normal_cdf

NODES = {3: 24, 4: 16}
LEAST_VARIANCE = 1e-14


def condition_on_pair(
    z_0: Tensor, pair: tuple[Tensor, Tensor, Tensor], others: list[tuple[Tensor, Tensor, Tensor]]
) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Standardise the other limits given ``z_0`` and ``z_j``: each limit, its sd and its two
    coefficients.

    ``pair`` is ``(z_j, r_0j, 1 - r_0j^2)``, each of ``others`` ``(z_k, r_0k, r_jk)``; written out
    because matrices this small cost more to start than to multiply.
    """
    z_j, r_0j, variance = pair
    results = []
    for z_k, r_0k, r_jk in others:
        a, b = (r_0k - r_0j * r_jk) / variance, (r_jk - r_0j * r_0k) / variance
        sd = (1 - a * r_0k - b * r_jk).clamp_min(LEAST_VARIANCE).sqrt()
        results.append(((z_k - a * z_0 - b * z_j) / sd, sd, a, b))
    return results


def plackett_probability(z: Tensor, correlation: Tensor) -> Tensor:
    """``Phi_p`` for ``z`` (n, p), ``correlation`` (n, p, p), ``p`` 3 or 4; off by 1e-16, hence
    perhaps negative.
    """
    p = z.shape[-1]
    # the least correlated coordinate is set free first
    z, correlation = reordered(z, correlation, correlation.square().sum(-1).argsort(-1))
    node, weight = gauss_nodes(NODES[p], z.device)
    t = torch.sin(0.5 * math.pi * node)
    weight = weight * (0.5 * math.pi) * torch.cos(0.5 * math.pi * node)
    columns = [c.unsqueeze(-1) for c in z.unbind(-1)]
    r = [[correlation[:, i, j].unsqueeze(-1) for j in range(p)] for i in range(p)]
    total = 0.0
    for j in range(1, p):
        r_0j = r[0][j] * t
        variance = (1 - r_0j * r_0j).clamp_min(LEAST_VARIANCE)
        z_0, z_j = columns[0], columns[j]
        density = torch.exp(-0.5 * (z_0 * z_0 + (z_j - r_0j * z_0).square() / variance))
        density = density / (2 * math.pi * variance.sqrt())
        rest = [k for k in range(1, p) if k != j]
        given = condition_on_pair(
            z_0, (z_j, r_0j, variance), [(columns[k], r[0][k] * t, r[j][k]) for k in rest]
        )
        if p == 3:
            inner = normal_cdf(given[0][0])
        else:
            (x, sd_x, a, b), (y, sd_y, _, _) = given
            k, m = rest
            rho = (r[k][m] - a * (r[0][m] * t) - b * r[j][m]) / (sd_x * sd_y)
            inner = absolute_probability(x, y, rho.clamp(-1, 1))
        total = total + r[0][j] * density * inner
    if p == 4:
        remaining = plackett_probability(z[:, 1:], correlation[:, 1:, 1:])
    else:
        remaining = absolute_probability(z[:, 1], z[:, 2], correlation[:, 1, 2])
    return normal_cdf(z[:, 0]) * remaining + total @ weight
