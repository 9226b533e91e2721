"""OpInfos and dtypes that PyTorchs after 2.13 brought: every case of opinfo_scope_later.tsv."""

import opinfo_cases
import pytest
import torch

LATER = opinfo_cases.read_later()


@pytest.mark.parametrize("case", list(LATER), ids=str)
def test_samples_agree_with_the_cpu_and_none_more_is_refused(case, device):
    outcome = opinfo_cases.run_case(case, device)
    assert not outcome.wrong, "\n".join(outcome.wrong[:5])
    assert (outcome.ran, outcome.refused) == LATER[case], sorted(outcome.refusals)


@pytest.mark.parametrize("case", opinfo_cases.out_cases(LATER), ids=str)
def test_out_is_written_as_on_the_cpu(case, device):
    outcome = opinfo_cases.run_out(case, device)
    assert not outcome.wrong, "\n".join(outcome.wrong)
    assert outcome.ran > 0


def test_the_list_names_what_this_pytorch_has():
    infos = opinfo_cases.op_infos()
    assert [case for case in LATER if case.dtype not in infos[case.name].dtypes] == []
    assert not LATER.keys() & opinfo_cases.read_scope().keys()


def test_roots_and_polar_factors_are_the_cpus_by_name_and_counted(device):
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(3))
    gram = x.mT @ x
    before = torch.heddle.cpu_operators()
    root = torch.linalg.matrix_sqrth(gram.to(device))
    u, h = torch.linalg.polar(x.to(device))
    into = torch.empty(0, device=device), torch.empty(0, device=device)
    torch.linalg.polar(x.to(device), out=into)
    counts = torch.heddle.cpu_operators()
    for name in ("aten::linalg_matrix_sqrth", "aten::linalg_polar", "aten::linalg_polar.out"):
        assert counts[name] - before.get(name, 0) == 1
    torch.testing.assert_close((root @ root).cpu(), gram, rtol=1e-4, atol=1e-4)
    for first, second in ((u, h), into):
        torch.testing.assert_close((first @ second).cpu(), x, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close((second @ second).cpu(), gram, rtol=1e-4, atol=1e-4)
    for call, refused in ((torch.linalg.polar, x.mT), (torch.linalg.matrix_sqrth, x)):
        with pytest.raises(RuntimeError) as theirs:
            call(refused)
        with pytest.raises(theirs.type) as ours:
            call(refused.to(device))
        assert str(ours.value) == str(theirs.value)
