"""Blocks: the collectives of one layer in one micro-batch: attention, feed-forward part or mixture of experts."""

from __future__ import annotations

from dataclasses import replace

from meshwright.cost.wire.context import Attention, context_backward, context_forward, context_replay
from meshwright.cost.wire.event import Event
from meshwright.cost.wire.options import WireOptions
from meshwright.cost.wire.regions import Passes, Tokens, enter, leave
from meshwright.spec.layout import Layout
from meshwright.spec.model import Experts, Model

_INDEX = 8
"""Bytes of an index or a count."""


def block(model: Model, layout: Layout, n: Tokens, o: WireOptions, layer: int) -> Passes:
    """One layer, with what the layout's recomputation runs again."""
    attention = _attention(model, layout, n, o)
    found = _enter_attention(model, layout, n, o)
    found.add(Passes(context_forward(attention), context_backward(attention)))
    found.add(leave(layout, n, o.activation))
    rest = len(found.forward)
    e = model.experts
    if e is not None and model.is_moe_layer(layer):
        unused = _add_mixture(found, model, e, layout, n, o)
    else:
        found.add(_mlp(layout, n, o))
        unused = 0 if layout.tensor == 1 else 1
    if layout.recompute == "full":
        # Recomputation ends with the last tensor that backward needs: nothing needs a sum at the very end of a block.
        found.replay = found.forward[: max(rest, len(found.forward) - unused)]
    elif layout.recompute == "selective":
        found.replay = context_replay(attention)
    return found


def _attention(model: Model, layout: Layout, n: Tokens, o: WireOptions) -> Attention:
    t = layout.tensor
    return Attention(
        kind=layout.context_kind,
        ranks=layout.context,
        tokens=n.all,
        heads=model.heads // t,
        kv_heads=max(model.kv_heads // t, 1),
        head_dim=model.head_dim,
        value_dim=model.latent.v_head_dim if model.latent else model.head_dim,
        element=o.activation,
        documents=o.documents,
    )


def _enter_attention(model: Model, layout: Layout, n: Tokens, o: WireOptions) -> Passes:
    """Hidden states; of latent attention the latents, which are narrower (arXiv:2405.04434 section 2.1)."""
    m = model.latent
    if m is None:
        return enter(layout, n, o.activation)
    found = Passes()
    for width in (m.q_lora_rank or n.hidden, m.kv_lora_rank + m.qk_rope_head_dim):
        found.add(enter(layout, replace(n, hidden=width), o.activation))
    return found


def _mlp(layout: Layout, n: Tokens, o: WireOptions) -> Passes:
    found = enter(layout, n, o.activation)
    found.add(leave(layout, n, o.activation))
    return found


def _add_mixture(found: Passes, model: Model, e: Experts, layout: Layout, n: Tokens, o: WireOptions) -> int:
    """Routed experts, the shared one, the balance loss's counts; returns the last collectives that backward does not
    need, which recomputation leaves out."""
    spread = layout.expert > 1
    found.add(_dispatch(e, layout, n, o) if spread else _features(e, layout, n, o))
    unused = 0 if spread else 1
    if e.shared_ffn_hidden:
        found.add(_mlp(layout, n, o))
        unused = 0 if e.shared_gate else 1
    if o.balance:
        # Counts of visits by sequence and expert, over the ranks that hold pieces of these sequences.
        ranks = layout.context * (layout.tensor if layout.sequence_parallel else 1)
        axis = "sequence" if layout.sequence_parallel else "context"
        found.forward.append(Event(axis, "all-reduce", ranks, layout.micro_batch * e.count * _INDEX))
        unused = 0
    return unused


def _dispatch(e: Experts, layout: Layout, n: Tokens, o: WireOptions) -> Passes:
    """Tokens to their experts and back (arXiv:2006.16668 section 3.2), and once how many; balanced routing is assumed:
    what a rank really sends depends on where its tokens go."""
    ranks = layout.expert
    visits = n.own * e.per_token * n.hidden * o.activation
    tokens = Event("expert", "all-to-all", ranks, visits, approximate=True)
    counts = Event("expert", "all-to-all", ranks, e.count * _INDEX)
    return Passes([counts, tokens, tokens], [tokens, tokens])


def _features(e: Experts, layout: Layout, n: Tokens, o: WireOptions) -> Passes:
    """Experts cut by features over tensor ranks: tokens, weights and choices gathered, outputs summed."""
    t, weights = layout.tensor, n.all * e.per_token * o.activation
    found = enter(layout, n, o.activation)
    if layout.sequence_parallel:
        found.forward += [
            Event("tensor", "all-gather", t, weights),
            Event("tensor", "all-gather", t, n.all * e.per_token * _INDEX),
        ]
        found.backward.append(Event("tensor", "reduce-scatter", t, weights))
    else:
        found.backward.append(Event("tensor", "all-reduce", t, weights))
    found.add(leave(layout, n, o.activation))
    return found
