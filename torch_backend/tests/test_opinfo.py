"""PyTorch's own operator samples on the device, against PyTorch's CPU: every case of opinfo_scope.tsv."""

from unittest import mock

import heddle.torch
import opinfo_cases
import opinfo_comparison
import opinfo_coverage
import pytest
import torch

SCOPE = opinfo_cases.read_scope()
LATER = opinfo_cases.read_later()
OPERATORS = opinfo_coverage.read_list()
UNKNOWN = set(heddle.torch._C.operators_unknown())  # to this PyTorch


@pytest.mark.parametrize("case", list(SCOPE), ids=str)
def test_samples_agree_with_the_cpu(case, device):
    outcome = opinfo_cases.run_case(case, device)
    ran, refused = SCOPE[case]
    assert not outcome.wrong, "\n".join(outcome.wrong[:5])
    if not opinfo_cases.IN_SCOPE:
        return
    assert outcome.ran + outcome.not_here >= ran, (
        f"{outcome.ran} samples ran, {ran} did before: {sorted(outcome.refusals)}"
    )
    assert outcome.refused <= refused, sorted(outcome.refusals)


@pytest.mark.parametrize("dtype", opinfo_comparison.SIXTEEN_BITS, ids=str)
def test_a_wrong_small_element_is_noticed_beside_a_large_one(dtype):
    exact = torch.tensor([1000.3, 0.0123, 3.0, float("inf"), float("nan")], dtype=torch.float64)
    right = exact.to(dtype)
    expected = right.clone()
    expected[0] = 1080  # the CPU's own error, which is out of all tolerances

    def is_taken(actual, **by):
        return opinfo_comparison.difference_of(actual, expected, exact, {}, "cpu", **by) == ""

    assert is_taken(right)
    neighbours = torch.nextafter(right, torch.zeros(()).to(dtype).expand(5))
    assert is_taken(torch.where(right.isfinite(), neighbours, right))
    for i, wrong in ((1, 0.02), (1, 0.0), (1, float("nan")), (2, 3.2), (2, -3.0), (0, 700.0), (3, 7.0)):
        actual = right.clone()
        actual[i] = wrong
        assert not is_taken(actual), (i, wrong)
    small = right.clone()
    small[1] = 0.02
    assert opinfo_comparison.no_farther(small, expected, exact)  # by the maxima it would do
    assert is_taken(small, by_the_largest=True)
    assert not is_taken(torch.where(right == right[0], 700.0, right).to(dtype), by_the_largest=True)


def test_what_is_measured_by_the_largest_value_is_an_operator_with_a_reason():
    assert all(opinfo_comparison.BY_THE_LARGEST.values())
    if opinfo_cases.IN_SCOPE:
        assert opinfo_comparison.BY_THE_LARGEST.keys() <= opinfo_cases.op_infos().keys()


@pytest.mark.parametrize("name", ["new_ones", "new_full", "full_like"])
def test_a_card_that_samples_name_is_the_device_under_test(name, device):
    case = opinfo_cases.Case(name, torch.float32)
    with mock.patch("torch.cuda.is_available", return_value=True):
        samples = opinfo_cases.samples_of(case)
    on_a_card = [sample for sample in samples if sample[3].get("device") == "cuda"]
    assert on_a_card
    with mock.patch.object(opinfo_cases, "samples_of", return_value=on_a_card):
        outcome = opinfo_cases.run_case(case, device)
    assert not outcome.wrong
    assert outcome.ran == len(on_a_card)


def test_whatever_device_a_sample_names_it_is_the_one_under_test(device):
    words = {"reduction": "mean", "equation": "ij,jk", "other": torch.device("meta"), "dtype": torch.float64}
    named = (torch.device("cuda:0"), torch.device("cpu"), "cuda:1", "cpu")
    for where in (device, "cpu"):
        moved = opinfo_cases.to_device((torch.ones(2, device=device), *named, words), where)
        assert moved[0].device.type == where
        assert moved[1:] == (torch.device(where), torch.device(where), where, where, words)


@pytest.mark.parametrize("case", opinfo_cases.out_cases(SCOPE), ids=str)
def test_out_is_written_as_on_the_cpu(case, device):
    outcome = opinfo_cases.run_out(case, device)
    assert not outcome.wrong, "\n".join(outcome.wrong)
    assert outcome.ran + outcome.not_here > 0


ANSWERS_OTHERWISE = [*opinfo_cases.OUT_REFUSED_OTHERWISE, *sorted(opinfo_cases.RESIZED_IN_SILENCE)]


@pytest.mark.parametrize("name", [name for name in ANSWERS_OTHERWISE if opinfo_cases.IN_SCOPE])
def test_what_is_named_for_another_answer_about_out_gives_one(name, device):
    with (
        mock.patch.object(opinfo_cases, "OUT_REFUSED_OTHERWISE", {}),
        mock.patch.object(opinfo_cases, "RESIZED_IN_SILENCE", set()),
    ):
        assert opinfo_cases.run_out(opinfo_cases.Case(name, torch.float32), device).wrong


def test_every_registered_operator_has_a_case_or_a_reason():
    registered = {name for name in heddle.torch._C.operators() if opinfo_coverage.is_functional(name)}
    assert registered == set(OPERATORS) - UNKNOWN
    assert all(reason for case, reason in OPERATORS.values() if case == "-")


@pytest.mark.parametrize(
    "operator",
    [
        name
        for name, (case, _) in OPERATORS.items()
        if case != "-"
        and name not in UNKNOWN
        and (opinfo_cases.IN_SCOPE or case.rpartition("-")[0] in opinfo_cases.op_infos())
    ],
)
def test_the_case_named_for_an_operator_calls_it(operator, device):
    name, _, dtype = OPERATORS[operator][0].rpartition("-")
    case = opinfo_cases.Case(name, getattr(torch, dtype))
    assert case in SCOPE or case in LATER
    # What comes after an operator that this device refuses is not called.
    called = opinfo_coverage.operators_of(case, device)
    assert operator in called or opinfo_cases.run_case(case, device).not_here
