"""PyTorch's own operator samples on the device, against PyTorch's CPU: every case of opinfo_scope.tsv."""

import heddle.torch
import opinfo_cases
import opinfo_coverage
import pytest
import torch

SCOPE = opinfo_cases.read_scope()
OPERATORS = opinfo_coverage.read_list()


@pytest.mark.parametrize("case", list(SCOPE), ids=str)
def test_samples_agree_with_the_cpu(case, device):
    outcome = opinfo_cases.run_case(case, device)
    ran, refused = SCOPE[case]
    assert not outcome.wrong, "\n".join(outcome.wrong[:5])
    if not opinfo_cases.IN_SCOPE:
        return
    assert outcome.ran + outcome.not_on_metal >= ran, (
        f"{outcome.ran} samples ran, {ran} did before: {sorted(outcome.refusals)}"
    )
    assert outcome.refused <= refused, sorted(outcome.refusals)


@pytest.mark.parametrize("case", opinfo_cases.out_cases(), ids=str)
def test_out_is_written_as_on_the_cpu(case, device):
    outcome = opinfo_cases.run_out(case, device)
    assert not outcome.wrong, "\n".join(outcome.wrong)
    if case.name in opinfo_cases.OUT_REFUSED:
        assert outcome.ran == 0
    else:
        assert outcome.ran + outcome.not_on_metal > 0


def test_every_registered_operator_has_a_case_or_a_reason():
    registered = {name for name in heddle.torch._C.operators() if opinfo_coverage.is_functional(name)}
    assert registered == set(OPERATORS)
    assert all(reason for case, reason in OPERATORS.values() if case == "-")


@pytest.mark.parametrize("operator", [name for name, (case, _) in OPERATORS.items() if case != "-"])
def test_the_case_named_for_an_operator_calls_it(operator, device):
    name, _, dtype = OPERATORS[operator][0].rpartition("-")
    case = opinfo_cases.Case(name, getattr(torch, dtype))
    assert case in SCOPE
    assert operator in opinfo_coverage.operators_of(case, device)
