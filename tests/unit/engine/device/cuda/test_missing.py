"""What is taken for a machine without cuda-bindings: what is missing of them, and nothing of ours."""

import importlib

import pytest

from voicegate.engine.device.cuda import is_mistake

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("module", "expected"),
    [("cuda.no_such_package", False), ("cuda_of_others", True), ("voicegate.engine.no_such_module", True)],
)
def test_a_missing_module(module: str, *, expected: bool) -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(module)
    assert is_mistake(caught.value) is expected


def test_a_name_that_a_module_lacks() -> None:
    pytest.importorskip("cuda.bindings")
    with pytest.raises(ImportError) as caught:
        exec("from cuda.bindings import no_such_name")
    assert not is_mistake(caught.value)
    with pytest.raises(ImportError) as caught:
        exec("from voicegate.engine.device.cuda import no_such_name")
    assert is_mistake(caught.value)
