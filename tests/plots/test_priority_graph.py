"""Pictures of priority graphs: what they show, and nothing sticks out."""

from __future__ import annotations

import pytest
from matplotlib.text import Text

from attsvm.next_token import from_text, priority_graph
from attsvm.plots import plot_priority_graph
from plots.checks import assert_no_clipped_text

TEXT = (
    "the cat sat on the mat . the dog sat on the cat . the mat sat on the dog . the cat saw the dog ."
    " the dog saw a $5 _hat ."
)


def test_boxes_hold_the_components():
    graph = priority_graph(from_text(TEXT, window=8))
    figure = plot_priority_graph(graph, ["the", "."], title="Priorities")
    texts = [text.get_text().replace("\u00a0", " ") for text in figure.findobj(Text)]
    assert any("after \u201cthe\u201d" in text for text in texts)
    for last in ("the", "."):
        for component in graph.components(graph.data.encode([last])[0]):
            if len(component) > 1:
                assert any(all(graph.data.words[token] in text for token in component) for text in texts)
    assert_no_clipped_text(figure)


def test_the_default_shows_the_most_frequent_last_tokens():
    assert len(plot_priority_graph(priority_graph(from_text(TEXT, window=8))).axes) == 3


def test_a_token_without_a_graph_is_refused():
    graph = priority_graph(from_text(TEXT, window=8))
    missing = next(word for number, word in enumerate(graph.data.words) if number not in graph.last_tokens)
    with pytest.raises(ValueError, match="no sample ends in"):
        plot_priority_graph(graph, missing)
    with pytest.raises(ValueError, match="graph must be a PriorityGraph"):
        plot_priority_graph(3)
