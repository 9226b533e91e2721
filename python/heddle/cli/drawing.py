"""A graph's text as an SVG: nodes in rows by their distance from the inputs, values as lines between."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from html import escape

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 150, 34, 18, 30, 24
VALUE = re.compile(r"%(\d+):\S*( \w+\[[^\]]*\])?")
# Who multiplies, who normalises, who moves; the rest is element-wise or small.
COLOURS = {
    "#9ec5e8": ("Linear", "MatMul", "Gemm", "Conv", "ConvTranspose", "Attention", "LSTM", "GRU", "RNN"),
    "#b9dfb4": ("Softmax", "LayerNormalization", "RMSNormalization", "BatchNormalization"),
    "#e4e4e4": (
        "Reshape",
        "Transpose",
        "Concat",
        "Split",
        "Slice",
        "Gather",
        "Expand",
        "Squeeze",
        "Unsqueeze",
    ),
}
PLAIN = "#f3dfb8"


@dataclass
class Box:
    """One node, or the graph's inputs or outputs. `rank` is its row."""

    label: str
    detail: str
    colour: str
    reads: list[int] = field(default_factory=list)  # boxes
    rank: int = 0
    x: float = 0.0


def read_boxes(text: str) -> list[Box]:
    """The first box stands for the inputs, the last for the outputs; constants are left out."""
    lines = text.strip().splitlines()
    boxes = [Box("inputs", ", ".join(re.findall(r"%\d+:(\S+) ", lines[0])), "#ffffff")]
    maker = {number: 0 for number, _ in VALUE.findall(lines[0])}
    for line in lines[1:]:
        if line.startswith("  return "):
            left, op, right = "", "outputs", line
        elif match := re.match(r"  (%.*?) = (\w+)\((.*)", line):
            left, op, right = match.groups()
        else:
            continue  # a line of a graph inside a node
        shape = VALUE.search(left)
        colour = next((c for c, operators in COLOURS.items() if op in operators), PLAIN)
        reads = sorted({maker[number] for number, _ in VALUE.findall(right) if number in maker})
        activation = re.search(r'activation="(\w+)"', right)
        boxes.append(
            Box(
                op + (f" + {activation[1]}" if activation else ""),
                (shape[2] or "").strip() if shape else "",
                "#ffffff" if op == "outputs" else colour,
                reads,
                1 + max((boxes[i].rank for i in reads), default=0),
            )
        )
        maker |= {number: len(boxes) - 1 for number, _ in VALUE.findall(left)}
    return boxes


def place(boxes: list[Box]) -> tuple[float, float]:
    """Sets every x, near the middle of what the box reads; the drawing's width and height."""
    rows: dict[int, list[Box]] = defaultdict(list)
    for box in boxes:
        rows[box.rank].append(box)
    widest = max(map(len, rows.values()))
    width = 2 * MARGIN + widest * (BOX_WIDTH + GAP_X) - GAP_X
    for rank in sorted(rows):
        row = rows[rank]
        row.sort(key=lambda box: sum(boxes[i].x for i in box.reads) / max(1, len(box.reads)))
        taken = len(row) * (BOX_WIDTH + GAP_X) - GAP_X
        for i, box in enumerate(row):
            box.x = (width - taken) / 2 + i * (BOX_WIDTH + GAP_X)
    return width, 2 * MARGIN + len(rows) * (BOX_HEIGHT + GAP_Y) - GAP_Y


def draw(text: str, title: str) -> str:
    """The SVG of what Model.graph() gives."""
    boxes = read_boxes(text)
    width, height = place(boxes)
    top = [MARGIN + 20 + box.rank * (BOX_HEIGHT + GAP_Y) for box in boxes]
    counts = ", ".join(f"{op} x{n}" for op, n in Counter(b.label for b in boxes[1:-1]).most_common(8))
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height + 20:.0f}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#fcfcfa"/>',
        f'<text x="{MARGIN}" y="18" font-weight="bold">{escape(title)}: {escape(counts)}</text>',
    ]
    for box, y in zip(boxes, top, strict=True):
        for i in box.reads:
            x0, y0 = boxes[i].x + BOX_WIDTH / 2, top[i] + BOX_HEIGHT
            x1, bend = box.x + BOX_WIDTH / 2, max(12.0, (y - y0) / 2)
            out.append(
                f'<path d="M{x0:.0f} {y0:.0f}C{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y - bend:.0f} '
                f'{x1:.0f} {y:.0f}" fill="none" stroke="#777" stroke-width="0.8"/>'
            )
    for box, y in zip(boxes, top, strict=True):
        out.append(
            f"<g><title>{escape(f'{box.label} {box.detail}')}</title>"
            f'<rect x="{box.x:.0f}" y="{y:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4" '
            f'fill="{box.colour}" stroke="#555"/>'
            f'<text x="{box.x + 6:.0f}" y="{y + 14:.0f}" font-weight="bold">{escape(box.label[:24])}</text>'
            f'<text x="{box.x + 6:.0f}" y="{y + 27:.0f}" fill="#555">{escape(box.detail[:26])}</text></g>'
        )
    return "\n".join([*out, "</svg>", ""])
