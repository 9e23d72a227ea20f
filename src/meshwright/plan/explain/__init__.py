"""Explanations: the field's textbook accounts as pages, with the reader's own numbers.

One file a topic or two, each with `page(topic, inputs)`; every number comes from `cost`, so that a page and the planner
agree. `explain` finds and fills a page; `topics.TOPICS` and `options.OPTIONS` say what there is to ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.plan.explain.page import Page
    from meshwright.spec.cluster import Cluster
    from meshwright.spec.layout import Layout
    from meshwright.spec.model import Model

__all__ = ["explain"]


def explain(
    topic: str,
    given: Mapping[str, str] | None = None,
    *,
    model: Model | None = None,
    cluster: Cluster | None = None,
    layout: Layout | None = None,
) -> Page:
    """The page of a topic. `given` holds options by name, as text; the nouns replace them.

    With a layout, the page ends with what the estimate says of the whole job. Raises RequestError: an unknown topic, an
    option that the topic does not read, a contradiction, or a layout that cannot run.
    """
    from meshwright.plan.explain.inputs import read_inputs
    from meshwright.plan.explain.topics import find_topic

    found = find_topic(topic)
    inputs = read_inputs(found, given or {}, model, cluster, layout)
    page: Page = import_module(f"{__name__}.{found.home}").page(found.name, inputs)
    if layout is None or found.name == "layout":
        return page
    from meshwright.plan.explain.job import job_section

    m = inputs.micro_batches if "micro_batches" in found.options else None
    section, numbers = job_section(inputs, layout, m)
    return replace(page, sections=(*page.sections, section), numbers={**page.numbers, "job": numbers})
