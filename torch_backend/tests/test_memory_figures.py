"""Figures of memory that people ask for by torch.cuda's names."""

import torch


def test_peaks_of_memory_begin_anew_when_asked_to():
    device = torch.device("heddle")
    tensor = torch.empty(16 << 20, dtype=torch.uint8, device=device)
    assert torch.heddle.max_memory_reserved() >= torch.heddle.max_memory_allocated() >= 16 << 20
    del tensor
    torch.heddle.synchronize()
    torch.heddle.empty_cache()
    for reset in (torch.heddle.reset_peak_memory_stats, torch.accelerator.reset_peak_memory_stats):
        reset()
        before = torch.heddle.max_memory_allocated(), torch.heddle.max_memory_reserved()
        assert before[0] < 16 << 20
        tensor = torch.empty(20 << 20, dtype=torch.uint8, device=device)
        assert torch.heddle.max_memory_allocated() - before[0] >= 19 << 20
        assert torch.accelerator.max_memory_reserved() == torch.heddle.max_memory_reserved() > before[1]
        del tensor
        torch.heddle.synchronize()
        torch.heddle.empty_cache()


def test_memory_left_and_its_summary_follow_what_is_reserved():
    free, limit = torch.heddle.mem_get_info()
    assert free == limit - torch.heddle.memory_reserved()
    assert limit == torch.heddle.memory_stats()["limit"]
    summary = torch.heddle.memory_summary()
    assert summary.splitlines()[0] == "memory of heddle:0, MiB"
    for name in ("allocated", "peak_allocated", "reserved", "peak_reserved", "limit", "hits"):
        assert any(line.split()[0] == name for line in summary.splitlines()[1:]), name
    assert "hits" not in torch.heddle.memory_summary(abbreviated=True)
