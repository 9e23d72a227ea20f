"""What a mixture's forward keeps for backward (`train/models/moe.py`, `modes/experts.py`), routing balanced.

N = n·k visits of E experts: probabilities, the choice and its order; the visits before and after the experts, 2 e·N·H;
inside them 4 e·N·F, in groups that a GPU's grouped product fills up to multiples of 8 rows.
"""

from __future__ import annotations

from meshwright.cost.program.shape import INDEX, WIDE, Shape

ALIGN = 8
"""Rows that a group is filled up to (`train/models/grouped.py`)."""


def mixture_kept(s: Shape) -> int:
    """Of a mixture, without its input."""
    e = s.model.experts
    assert e is not None
    spread = s.layout.expert > 1
    visits = visits_of(s)
    return _routing(s, visits // e.per_token) + _travel(s, visits, spread) + _experts(s, visits) + _shared(s)


def visits_of(s: Shape) -> int:
    """N: visits that a rank's experts get in one micro-batch; tensor ranks that split experts share all tokens."""
    e = s.model.experts
    assert e is not None
    rows = s.rows if s.layout.expert > 1 or not s.sequence else s.tokens
    return rows * e.per_token


def multiplied_rows(s: Shape) -> int:
    """Rows of the experts' products: the visits, and what fills up each expert's group for a GPU's grouped product."""
    if not (s.grouped and _width(s) % ALIGN == 0 and s.model.hidden % ALIGN == 0):
        return visits_of(s)
    filled = visits_of(s) + ALIGN * _local(s)
    return filled + -filled % ALIGN


def _local(s: Shape) -> int:
    """Experts of a rank."""
    e = s.model.experts
    assert e is not None
    return e.count // max(s.layout.expert, 1)


def _width(s: Shape) -> int:
    """An expert's inner width on a rank: tensor ranks split it where experts are not spread."""
    e = s.model.experts
    assert e is not None
    return e.ffn_hidden if s.layout.expert > 1 else e.ffn_hidden // s.layout.tensor


def _routing(s: Shape, rows: int) -> int:
    """Probabilities, the experts chosen and their weights, and what the load-balancing loss keeps.

    The weights are counted as scaled to sum to 1, which a Model does not say: 4·n·(k + 1) bytes too many where not.
    """
    e = s.model.experts
    assert e is not None
    n, k = s.rows, e.per_token
    probabilities = 2 * WIDE * n * e.count
    chosen = INDEX * n * k
    weights = s.element * rows * k
    scaled = WIDE * n * (k + 1)
    return probabilities + chosen + weights + scaled + s.copies(s.model.hidden * e.count)


def _travel(s: Shape, visits: int, spread: bool) -> int:
    """Visits in the order of experts, and orders there and back, twice where they also change ranks."""
    return 2 * s.element * visits * s.model.hidden + 2 * INDEX * visits * (2 if spread else 1)


def _experts(s: Shape, visits: int) -> int:
    """Inside the experts; between them tensor ranks split features where they are not spread."""
    h, local, width = s.model.hidden, _local(s), _width(s)
    casts = s.copies(3 * local * h * width)
    filled = multiplied_rows(s)
    if filled == visits:
        return 4 * s.element * visits * width + casts
    return s.element * filled * (h + 4 * width) + INDEX * visits + 4 * local + casts


def _shared(s: Shape) -> int:
    e = s.model.experts
    assert e is not None
    if not e.shared_ffn_hidden:
        return 0
    width = e.shared_ffn_hidden // s.layout.tensor
    inner = 4 * s.element * s.tokens * width + s.copies(3 * s.model.hidden * width)
    gathered = s.entered if s.sequence else 0
    gate = s.hidden + s.element * s.rows + s.copies(s.model.hidden) if e.shared_gate else 0
    return inner + gathered + gate
