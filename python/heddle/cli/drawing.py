"""A graph's text as an SVG: nodes in rows by their distance from the inputs, values as lines between."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from html import escape

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 180, 38, 40, 26, 24
MIN_WIDTH = 620  # of the title
VALUE = re.compile(r"%(\d+)(?::(\S*))?( \w+\[[^\]]*\])?")
# Products, normalisations, movements; the rest is element-wise or small.
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
    name: str = ""  # of the first value it makes
    seconds: float | None = None


@dataclass
class Note:
    """What is known of a node beyond the graph's text: what it makes for certain extents, and its time."""

    makes: str
    seconds: float | None


def read_boxes(text: str, notes: dict[str, Note]) -> list[Box]:
    """The first box stands for the inputs, the last for the outputs; constants are left out."""
    lines = text.strip().splitlines()
    boxes = [Box("inputs", ", ".join(re.findall(r"%\d+:(\S+) ", lines[0])), "#ffffff")]
    maker = {number: 0 for number, *_ in VALUE.findall(lines[0])}
    for line in lines[1:]:
        if line.startswith("  return "):
            left, op, right = "", "outputs", line
        elif match := re.match(r"  (%.*?) = (\w+)\((.*)", line):
            left, op, right = match.groups()
        else:
            continue  # a line of a graph inside a node
        shape = VALUE.search(left)
        colour = next((c for c, operators in COLOURS.items() if op in operators), PLAIN)
        reads = sorted({maker[number] for number, *_ in VALUE.findall(right) if number in maker})
        activation = re.search(r'activation="(\w+)"', right)
        name = shape[2] or "" if shape else ""
        note = notes.get(name) or Note((shape[3] or "").strip() if shape else "", None)
        boxes.append(
            Box(
                op + (f" + {activation[1]}" if activation else ""),
                ", ".join(port for _, port, _ in VALUE.findall(line)) if op == "outputs" else note.makes,
                "#ffffff" if op == "outputs" else colour,
                reads,
                1 + max((boxes[i].rank for i in reads), default=0),
                name=name,
                seconds=note.seconds,
            )
        )
        maker |= {number: len(boxes) - 1 for number, *_ in VALUE.findall(left)}
    return boxes


def place(boxes: list[Box]) -> tuple[float, float]:
    """Sets every x, near the middle of what the box reads; the drawing's width and height."""
    rows: dict[int, list[Box]] = defaultdict(list)
    for box in boxes:
        rows[box.rank].append(box)
    widest = max(map(len, rows.values()))
    width = max(MIN_WIDTH, 2 * MARGIN + widest * (BOX_WIDTH + GAP_X) - GAP_X)
    for rank in sorted(rows):
        row = rows[rank]
        row.sort(key=lambda box: sum(boxes[i].x for i in box.reads) / max(1, len(box.reads)))
        taken = len(row) * (BOX_WIDTH + GAP_X) - GAP_X
        for i, box in enumerate(row):
            box.x = (width - taken) / 2 + i * (BOX_WIDTH + GAP_X)
    return width, 2 * MARGIN + len(rows) * (BOX_HEIGHT + GAP_Y) - GAP_Y


def draw_line(upper: Box, y0: float, lower: Box, y1: float) -> str:
    """From one row to the next straight down; over several rows around the boxes between."""
    if lower.rank - upper.rank == 1:
        x0, x1 = upper.x + BOX_WIDTH / 2, lower.x + BOX_WIDTH / 2
        y0, bend = y0 + BOX_HEIGHT, GAP_Y / 2
        path = f"M{x0:.0f} {y0:.0f}C{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1:.0f}"
    else:
        x0, x1 = upper.x + BOX_WIDTH, lower.x + BOX_WIDTH
        aside = max(x0, x1) + min(GAP_X, 12 + 6 * (lower.rank - upper.rank))
        y0, y1 = y0 + BOX_HEIGHT / 2, y1 + BOX_HEIGHT / 2
        path = f"M{x0:.0f} {y0:.0f}C{aside:.0f} {y0:.0f} {aside:.0f} {y1:.0f} {x1:.0f} {y1:.0f}"
    return f'<path d="{path}" fill="none" stroke="#777" stroke-width="0.8"/>'


def draw_box(box: Box, y: float, slowest: float) -> str:
    """With its time at the right, and a bar as long as that is against the slowest."""
    time = bar = ""
    if box.seconds is not None:
        time = (
            f'<text x="{box.x + BOX_WIDTH - 6:.0f}" y="{y + 15:.0f}" text-anchor="end">'
            f"{box.seconds * 1e3:.3g} ms</text>"
        )
        length = BOX_WIDTH * box.seconds / slowest
        start = f"M{box.x:.0f} {y + BOX_HEIGHT - 1.5:.1f}"
        bar = f'<path d="{start}h{length:.1f}" stroke="#c0392b" stroke-width="3"/>'
    return (
        f"<g><title>{escape(f'{box.label} {box.name} {box.detail}')}</title>"
        f'<rect x="{box.x:.0f}" y="{y:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4" '
        f'fill="{box.colour}" stroke="#555"/>{bar}'
        f'<text x="{box.x + 6:.0f}" y="{y + 15:.0f}" font-weight="bold">{escape(box.label[:20])}</text>{time}'
        f'<text x="{box.x + 6:.0f}" y="{y + 29:.0f}" fill="#555">{escape(box.detail[:30])}</text></g>'
    )


def draw(text: str, title: str, notes: dict[str, Note] | None = None) -> str:
    """The SVG of what Model.graph() gives. `notes` by the name of a node's first value."""
    boxes = read_boxes(text, notes or {})
    width, height = place(boxes)
    top = [MARGIN + 20 + box.rank * (BOX_HEIGHT + GAP_Y) for box in boxes]
    counts = ", ".join(f"{op} x{n}" for op, n in Counter(b.label for b in boxes[1:-1]).most_common(6))
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height + 20:.0f}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#fcfcfa"/>',
        f'<text x="{MARGIN}" y="18" font-weight="bold">{escape(title)}: {escape(counts)}</text>',
    ]
    for box, y in zip(boxes, top, strict=True):
        out += [draw_line(boxes[i], top[i], box, y) for i in box.reads]
    slowest = max((box.seconds for box in boxes if box.seconds), default=1.0)
    out += [draw_box(box, y, slowest) for box, y in zip(boxes, top, strict=True)]
    return "\n".join([*out, "</svg>", ""])
