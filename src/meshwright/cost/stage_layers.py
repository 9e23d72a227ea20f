"""Stage layers: how many layers each pipeline stage of our runtime has."""

from __future__ import annotations

from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import Layout


def layers_of_stages(layers: int, layout: Layout) -> list[int]:
    """Layers of each stage in model order: by hand where the layout gives them, else balanced.

    Balanced: embedding and head count as a layer each, on the first and the last stage; the fullest stage is as small
    as can be, every stage has a layer, and among such cuts the evenest is taken. Raises LayoutError where layers do
    not suffice, or stages by hand do not place each layer once.
    """
    stages = layout.stages
    if layout.stage_layers:
        if len(layout.stage_layers) != stages or sum(layout.stage_layers) != layers:
            raise LayoutError(
                f"stages:{'-'.join(map(str, layout.stage_layers))} places {sum(layout.stage_layers)} layers in "
                f"{len(layout.stage_layers)} stages; the model has {layers} layers, the layout {stages} stages."
            )
        return list(layout.stage_layers)
    if stages > layers:
        raise LayoutError(f"{layers} layers cannot fill {stages} stages.")
    counts = [layers // stages] * stages
    # What does not divide goes where neither embedding nor head is.
    extra = layers - sum(counts)
    for index in sorted(range(stages), key=lambda i: (i in (0, stages - 1), i == stages - 1, abs(2 * i - stages + 1)))[
        :extra
    ]:
        counts[index] += 1
    # One layer less beside embedding and head, as long as that lowers the fullest stage.
    for edge in (stages - 1, 0):
        inner = [i for i in range(stages) if i not in (0, stages - 1)]
        lightest = min(inner, key=lambda i: (counts[i], abs(2 * i - stages + 1)), default=None)
        if lightest is not None and counts[edge] > 1 and counts[edge] + 1 > counts[lightest] + 1:
            counts[edge] -= 1
            counts[lightest] += 1
    return counts
