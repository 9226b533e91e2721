"""torchvision's operators on boxes, which the device runs on the CPU: the same values, on the device."""

import pytest
import torch
from threads import count_right, run_threads
from torchvision_apart import torchvision

DTYPES = [torch.float32, torch.float16]


@pytest.fixture(scope="module", autouse=True)
def vision():
    return torchvision().ops


def boxes_of(count, extent, seed=0, dtype=torch.float32):
    """Within a picture, and with an extent: a corner and the one opposite."""
    drawn = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=drawn) * extent / 2
    size = 1 + torch.rand(count, 2, generator=drawn) * (extent / 2 - 1)
    return torch.cat([corner, corner + size], 1).to(dtype)


def scores_of(count, dtype=torch.float32):
    """Different ones, in 16 bits as well."""
    return (torch.randperm(count, generator=torch.Generator().manual_seed(1)) / 256).to(dtype)


def regions_of(pictures, boxes, height, width, scale):
    """The operator itself: where the wheel does not load, torchvision.ops.roi_align compiles code instead."""
    numbers = [torch.full_like(each[:, :1], i) for i, each in enumerate(boxes)]
    rois = torch.cat([torch.cat(pair, 1) for pair in zip(numbers, boxes, strict=True)])
    return torch.ops.torchvision.roi_align(pictures, rois, scale, height, width, 2, False)


def same(work, *tensors, device, names):
    """The CPU's result on the device, or an error where the CPU has one; and it was the CPU's kernel."""
    on_device = [each.to(device) for each in tensors]
    before = torch.heddle.cpu_operators()
    try:
        expected = work(*tensors)
    except (NotImplementedError, RuntimeError) as error:
        with pytest.raises(type(error)):
            work(*on_device)
        return None
    got = work(*on_device)
    counted = torch.heddle.cpu_operators()
    assert {name: counted[name] - before.get(name, 0) for name in names} == dict.fromkeys(names, 1)
    assert got.device.type == device
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    torch.testing.assert_close(got.cpu(), expected)
    return expected


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("count", [0, 1, 60])
def test_nms_keeps_the_boxes_that_the_cpu_keeps(count, threshold, dtype, vision, device):
    boxes, scores = boxes_of(count, 20, dtype=dtype), scores_of(count, dtype)
    kept = same(
        lambda boxes, scores: vision.nms(boxes, scores, threshold),
        boxes,
        scores,
        device=device,
        names=["torchvision::nms"],
    )
    if dtype is torch.float32:
        assert kept is not None
        assert len(kept) <= count
        assert count < 60 or threshold > 0.5 or len(kept) < count


def test_nms_drops_the_lower_of_two_that_overlap(vision, device):
    boxes = torch.tensor([[0, 0, 4, 4.0], [0, 0, 4, 3], [9, 9, 12, 12]], device=device)
    scores = torch.tensor([0.5, 0.6, 0.1], device=device)
    assert vision.nms(boxes, scores, 0.5).tolist() == [1, 2]
    assert vision.nms(boxes, scores, 0.8).tolist() == [1, 0, 2]


def test_nms_of_several_images_keeps_what_overlaps_in_others(vision, device):
    boxes = boxes_of(40, 20)
    images = torch.arange(40) % 3
    kept = vision.batched_nms(boxes.to(device), scores_of(40).to(device), images.to(device), 0.3)
    expected = vision.batched_nms(boxes, scores_of(40), images, 0.3)
    assert kept.is_heddle
    assert torch.equal(kept.cpu(), expected)
    alone = [vision.nms(boxes[images == i], scores_of(40)[images == i], 0.3) for i in range(3)]
    assert len(expected) == sum(len(each) for each in alone)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("counts", [(5,), (3, 0, 4), (0, 0)], ids=str)
def test_regions_of_several_images_are_sampled_as_on_the_cpu(counts, dtype, device):
    pictures = torch.randn(len(counts), 3, 16, 20, generator=torch.Generator().manual_seed(2)).to(dtype)
    boxes = [boxes_of(count, 30, seed, dtype) for seed, count in enumerate(counts)]
    expected = same(
        lambda x, *boxes: regions_of(x, boxes, 3, 2, 0.5),
        pictures,
        *boxes,
        device=device,
        names=["torchvision::roi_align"],
    )
    assert expected is not None
    assert expected.shape == (sum(counts), 3, 3, 2)


def test_a_region_of_a_ramp_has_the_middles_of_its_parts(device):
    ramp = torch.arange(16.0).expand(1, 2, 16, 16).contiguous()
    region = torch.tensor([[2.0, 4.0, 10.0, 12.0]], device=device)
    got = regions_of(ramp.to(device), [region], 2, 4, 1.0)
    torch.testing.assert_close(got.cpu(), torch.tensor([3.0, 5, 7, 9]).expand(1, 2, 2, 4))


def test_eight_threads_have_the_regions_and_the_boxes_of_their_own(vision, device):
    pictures = torch.randn(8, 2, 12, 12)
    boxes = [boxes_of(4 + thread, 12, thread) for thread in range(8)]

    def regions(thread, _, where):
        return regions_of(pictures[thread : thread + 1].to(where), [boxes[thread].to(where)], 3, 3, 1.0)

    done = count_right(8, 6, lambda t, i: regions(t, i, device), lambda t, i: regions(t, i, "cpu"))
    assert done == 8 * 6

    def kept(thread, where):
        return vision.nms(boxes[thread].to(where), scores_of(len(boxes[thread])).to(where), 0.2).tolist()

    wanted = [kept(thread, "cpu") for thread in range(8)]
    assert run_threads(8, lambda t: [kept(t, device) for _ in range(6)]) == [[each] * 6 for each in wanted]
