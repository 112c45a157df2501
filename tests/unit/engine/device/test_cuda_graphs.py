"""What needs no GPU of a set of CUDA graphs; tests/gpu replays real ones."""

from unittest.mock import Mock

import pytest
import torch

from voicegate.engine.device.cuda_graphs import GraphNotCaptured, GraphSet

pytestmark = pytest.mark.unit


def test_a_graph_that_was_not_captured_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    graphs = GraphSet(Mock(spec=torch.cuda.Stream))
    assert len(graphs) == 0
    with pytest.raises(GraphNotCaptured, match=r"for \(4, 50\): call capture\(\) once"):
        graphs.replay((4, 50))
