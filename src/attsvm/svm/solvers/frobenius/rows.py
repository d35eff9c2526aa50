"""Problems of one batch as tensors of rows, scaled by powers of two; the two maps and the Gram matrix."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Rows:
    """Rows scaled by powers of two (exact): D [B,m,d], Z [B,m,dq] (each row's own query), b, reach [B,m], masks [B,m]."""

    D: torch.Tensor
    Z: torch.Tensor
    b: torch.Tensor
    reach: torch.Tensor
    present: torch.Tensor
    equal: torch.Tensor

    def forward(self, W):
        return ((self.Z @ W.mT) * self.D).sum(-1)

    def adjoint(self, lam):
        return (self.D * lam[..., None]).mT @ self.Z

    def gram(self):
        return (self.D @ self.D.mT) * (self.Z @ self.Z.mT)

    def take(self, index):
        return Rows(*(getattr(self, name)[index] for name in self.__dataclass_fields__))


def power_of_two(x):
    """The power of two p with p x in [1, 2); 1 where x = 0."""
    exponent = torch.frexp(x).exponent
    return torch.where(x > 0, torch.ldexp(torch.ones_like(x), 1 - exponent), 1.0)


def gather(D, present, equal, Z, b, m):
    """[B, n, T] problems as `Rows` of m rows each, with what leads back: index, factor [B,m], unit [B,1], lone rays [B,m].

    W = W' / unit, lam = lam' factor / unit for the scaled answer W', lam'. A zero row holds by itself or is a ray by itself.
    """
    B, n, T, d = D.shape
    index = torch.argsort((~present).flatten(1).to(torch.int8), dim=1, stable=True)[:, :m]
    batch = torch.arange(B, device=D.device)[:, None]
    tokens, queries = D.flatten(1, 2)[batch, index], Z[batch, index // T]
    present, equal, b = (torch.gather(x.flatten(1), 1, index) for x in (present, equal, b))
    size, length = tokens.norm(dim=2), queries.norm(dim=2)
    zero = (size * length) == 0
    hopeless = present & zero & ((b > 0) | (equal & (b != 0)))
    lone = torch.where(hopeless, 1.0 / torch.where(b == 0, 1.0, b), 0.0) / hopeless.sum(1, keepdim=True).clamp(min=1)
    present, equal = present & ~zero, equal & ~zero
    shrink, scale = power_of_two(length), power_of_two(size)
    factor = shrink * scale
    asks = present & ((b > 0) | equal)
    b = torch.where(present, b, 0.0)
    unit = power_of_two(torch.where(asks, (b * factor).abs(), 0.0).amax(1, keepdim=True))
    widest = torch.where(asks, b.abs(), 0.0).amax(1, keepdim=True)
    rows = Rows(
        D=torch.where(present[..., None], tokens * scale[..., None], 0.0),
        Z=queries * shrink[..., None],
        b=b * factor * unit,
        reach=widest * factor * unit,
        present=present,
        equal=equal,
    )
    return rows, index, factor, unit, lone
