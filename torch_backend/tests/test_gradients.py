"""Gradients of PyTorch's operator samples on the device: the CPU's, or a refusal that names an operator."""

import gradient_cases
import opinfo_cases
import pytest

LIST = gradient_cases.read_list()
NAMES = gradient_cases.names()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_the_cpu_s_or_name_the_operator_that_is_not_there(name, device):
    outcome = gradient_cases.run(name, device)
    assert not outcome.wrong, "\n".join(outcome.wrong)
    assert outcome.right or outcome.missing or name == "linalg.eig"
    if opinfo_cases.IN_SCOPE:
        assert str(outcome) == LIST[name]


@pytest.mark.skipif(not opinfo_cases.IN_SCOPE, reason="the list is of this PyTorch's operators")
def test_the_list_has_each_operator_with_gradients_and_most_are_right():
    assert list(LIST) == NAMES
    assert list(LIST.values()).count(gradient_cases.RIGHT) >= 430
