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
    from meshwright.plan.explain.inputs import Inputs
    from meshwright.plan.explain.page import Page
    from meshwright.plan.explain.topics import Topic
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
    given = given or {}
    inputs = read_inputs(found, given, model, cluster, layout)
    account = import_module(f"{__name__}.{found.home}").page
    if layout is None or found.name == "layout":
        return _with_links(account(found.name, inputs), inputs, found)
    from meshwright.plan.explain.job import job_section, price

    priced = price(inputs, layout)
    if "step_time" not in given:
        inputs = replace(inputs, step_time=priced.step_seconds)
    page = _with_links(account(found.name, inputs), inputs, found)
    section, numbers = job_section(priced)
    return replace(page, sections=(*page.sections, section), numbers={**page.numbers, "job": numbers})


def _with_links(page: Page, inputs: Inputs, topic: Topic) -> Page:
    """The page with the bandwidth and latency that its seconds assume, if it has seconds of traffic."""
    from meshwright.plan.explain.common import links_line
    from meshwright.plan.explain.page import YOURS

    if "latency" not in topic.options:
        return page
    line = links_line(inputs)
    sections = tuple(
        replace(section, lines=(*section.lines, line)) if section.heading == YOURS else section
        for section in page.sections
    )
    return replace(page, sections=sections)
