"""The rows of bench/cuda/figure.py: each measures its sides in turn and holds a figure against its bar."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import figure_busy
import figure_probe
import ratios
from figure_sides import KINDS, THREADS, Failed, Side, Sides

CALLERS = {1: None, 8: 30.0, 16: 54.0, 64: 110.0, 128: 145.0, 256: 170.0, 512: None, 1024: None}
OFFLINE = {64: 4.0, 256: 3.0, 1024: 2.0}
PYTHON = {16: 5.0, 64: 4.0}
WARM_UPS = 4  # of sentences: each length and number of rows is compiled when it first comes
Rates = dict[str, list[float]]


@dataclass(frozen=True)
class Figure:
    row: str
    quartiles: tuple[float, float, float]  # over the rounds
    bar: float | None
    at_least: bool = True  # the bar is; else at most

    @property
    def met(self) -> bool | None:
        if self.bar is None:
            return None
        return self.quartiles[1] >= self.bar if self.at_least else self.quartiles[1] <= self.bar

    def as_json(self) -> dict:
        return asdict(self) | {"met": self.met}


class Table:
    def __init__(self, sides: Sides) -> None:
        self.sides, self.options = sides, sides.options
        self.figures: list[Figure] = []
        self.rates: dict[str, Rates] = {}
        self.calls: dict[str, list[dict]] = {}  # what cuda_callers said, round by round
        self.busy: dict[str, figure_busy.Share] = {}

    def add(
        self, row: str, quartiles: tuple[float, float, float], bar: float | None, at_least: bool = True
    ) -> None:
        self.figures.append(Figure(row, quartiles, bar, at_least))
        told = "" if bar is None else f"bar: {'>=' if at_least else '<='} {bar:g}"
        ratios.show(row, quartiles, "x", told)

    def callers(self, name: str, work: str, n: int, value: str = "rows_per_s", **more: int | str) -> Side:
        def side() -> float:
            said = self.sides.callers(work, n, **more)
            self.calls.setdefault(name, []).append(said)
            return said[value]

        return side

    def turns(self, name: str, sides: dict[str, Side]) -> Rates:
        rates = self.rates[name] = self.sides.in_turn(sides)
        for side, values in rates.items():
            ratios.show(f"{name}: {side}", ratios.spread(values), "rows/s")
        return rates

    def over_best(self, row: str, mine: list[float], rates: Rates, bar: float, at_least: bool = True) -> None:
        """Against the peer with the greatest median."""
        peers = {name: values for name, values in rates.items() if not name.startswith("heddle")}
        if not peers:
            raise Failed(f"{row}: no peer worked")
        best = max(peers, key=lambda name: statistics.median(peers[name]))
        self.add(f"{row} / {best}", ratios.ratio(mine, peers[best]), bar, at_least)


def callers(table: Table) -> None:
    """Blocking callers of one row, 64 with 8 requests outstanding each, the tail, and the fall at 1,024."""
    small = table.options.double
    counts = (1, 64) if small else tuple(CALLERS)
    sides = {f"heddle, {n} callers": table.callers(f"mlp, {n} callers", "mlp", n) for n in counts}
    sides["heddle, 64 x 8 outstanding"] = table.callers("mlp, 64 x 8", "mlp", 64, outstanding=8)
    eager = "eager, 8 threads"
    sides |= table.sides.best(KINDS, "mlp", THREADS) | {eager: table.sides.peer("eager", "mlp", 8)}
    rates = table.turns("mlp, callers of one row", sides)
    for n in counts:
        quartiles = ratios.ratio(rates[f"heddle, {n} callers"], rates[eager])
        table.add(f"MLP, {n} callers / {eager}", quartiles, CALLERS[n])
    quartiles = ratios.ratio(rates["heddle, 64 x 8 outstanding"], rates[eager])
    table.add(f"MLP, 64 callers x 8 outstanding / {eager}", quartiles, 340)
    tails = [said["p99_us"] / said["p50_us"] for said in table.calls["mlp, 64 callers"]]
    table.add("MLP, 64 callers: p99 / p50", ratios.spread(tails), 1.6, at_least=False)
    if not small:
        every = zip(*(rates[f"heddle, {n} callers"] for n in counts), strict=True)
        table.add(
            "MLP, 1,024 callers / best number of callers", ratios.spread([r[-1] / max(r) for r in every]), 0.9
        )


def outstanding(table: Table) -> None:
    """Requests without a thread that waits: 64 callers with 8 under way each, and as many tasks of Python.

    The tasks are of one thread of Python, which checks one answer in 256: no row is a peer of another.
    """
    n = 4 if table.options.double else 64
    sides = {"heddle, submit": table.callers("mlp, submit", "mlp", n, outstanding=8)}
    sides["heddle, BatchQueue"] = table.callers("mlp, BatchQueue", "mlp", n, outstanding=8, queue=4)
    for kind, name in (("asubmit", "heddle, asubmit"), ("queue", "heddle, BatchQueue.asubmit")):
        sides[name] = table.sides.peer(kind, "mlp", 8 * n)
    eager = "eager, 8 threads"
    sides[eager] = table.sides.peer("eager", "mlp", 8)
    for name, side in sides.items():  # the last requests make a batch of a size that was not compiled
        table.sides.first_try(f"mlp, {name}", side)
    rates = table.turns("mlp, requests under way", sides)
    for name in sides:
        if name != eager:
            row = f"MLP, {8 * n} requests under way: {name.removeprefix('heddle, ')} / {eager}"
            table.add(row, ratios.ratio(rates[name], rates[eager]), None)


def one(table: Table) -> None:
    """Latency of one caller: a rate of one caller is its reciprocal, so the bar is that of times."""
    sides = {"heddle": table.callers("mlp, one caller", "mlp", 1)}
    sides |= table.sides.best(KINDS, "mlp", (1,))
    rates = table.turns("mlp, one caller", sides)
    times = {name: [1 / value for value in values] for name, values in rates.items()}
    peers = {name: values for name, values in times.items() if name != "heddle"}
    best = min(peers, key=lambda name: statistics.median(peers[name]))
    table.add(
        f"MLP, one caller: latency / {best}", ratios.ratio(times["heddle"], peers[best]), 0.6, at_least=False
    )


def encoder(table: Table) -> None:
    n = 4 if table.options.double else 64
    sides = {"heddle": table.callers("encoder, 64 callers", "encoder", n)}
    sides |= table.sides.best(KINDS, "encoder", THREADS)
    sides["eager, 8 threads"] = table.sides.peer("eager", "encoder", 8)
    rates = table.turns("encoder, 64 callers of one row", sides)
    quartiles = ratios.ratio(rates["heddle"], rates["eager, 8 threads"])
    table.add("encoder, 64 callers / eager, 8 threads", quartiles, 20)


def python(table: Table) -> None:
    for work in ("mlp",) if table.options.double else ("mlp", "encoder"):
        for n, bar in PYTHON.items():
            sides = {"heddle": table.sides.peer("heddle", work, n)} | table.sides.best(KINDS, work, (n,))
            rates = table.turns(f"{work}, {n} Python threads", sides)
            table.over_best(f"{work}, {n} Python threads", rates["heddle"], rates, bar)


def offline(table: Table) -> None:
    for rows, bar in list(OFFLINE.items())[: 1 if table.options.double else None]:
        n = table.sides.best_callers("mlp", rows)
        name = f"mlp, {n} callers of {rows} rows"
        sides = {"heddle": table.callers(name, "mlp", n, rows=rows)}
        sides |= table.sides.best(KINDS, "mlp", THREADS, rows)
        rates = table.turns(f"mlp, batches of {rows}", sides)
        table.over_best(f"MLP, batches of {rows} over all lanes", rates["heddle"], rates, bar)


def own_models(table: Table) -> None:
    """Eight models in one process; a single caller uses the first of them."""
    sides = {n: table.callers(f"mlp, {n} own models", "mlp", n, models=8) for n in (1, 8)}
    rates = table.turns(
        "mlp, callers with models of their own", {f"heddle, {n}": s for n, s in sides.items()}
    )
    table.add("MLP, 8 callers with own models / one", ratios.ratio(rates["heddle, 8"], rates["heddle, 1"]), 3)


def ragged(table: Table) -> None:
    """Sentences of 4 to 64 tokens; PyTorch's are sorted by length and padded in batches of 64."""
    n, work = 64, "minilm_torch"
    sides = {"heddle": table.callers("minilm, 64 callers", work, n)}
    sides["sentences"] = table.sides.peer("sentences", work, 1)
    for name, side in sides.items():
        for _ in range(WARM_UPS):
            if table.sides.first_try(f"{work}, {name}", side) is None:
                break
    rates = table.turns("minilm, sentences", sides)
    quartiles = ratios.ratio(rates["heddle"], rates["sentences"])
    table.add("MiniLM, 64 callers of ragged sentences / batches of 64", quartiles, 1.5)


def device(table: Table) -> None:
    """PyTorch's device heddle over the card; only where heddle-torch was carried."""
    if table.options.torch_device is None:
        raise Failed("device: heddle-torch is not here")
    places = [str(table.options.torch_device), os.environ.get("PYTHONPATH", "")]
    asked = {"threads": 16, "rows": 1, "seconds": table.options.seconds}
    env = {"PYTHONPATH": ":".join(places)}

    def side(place: str) -> Side:
        child = table.sides.child("peer", "device", "minilm_torch", place, env=env)
        return lambda: child.ask(json.dumps(asked))["rows_per_s"]

    rates = table.turns("minilm, 16 threads of eager", {place: side(place) for place in ("heddle", "cuda")})
    table.add("MiniLM, 16 threads on heddle / on cuda", ratios.ratio(rates["heddle"], rates["cuda"]), 1.5)


CARDS = (("minilm_torch", 256, True), ("minilm_torch", 512, False), ("encoder", 256, False))


def cards(table: Table) -> None:
    """The same callers on one card and on all. In the first work a card is what bounds them; the host does
    more for each row of the others, whose ratios are held against no bar."""
    small = table.options.double
    for work, n, has_bar in (("mlp", 4, True),) if small else CARDS:
        count = table.sides.callers(work, n, cards="all", ragged=False)["devices"]  # which warms up, too
        if count == 1:
            table.sides.left_out.append("cards: the machine has one")
            return
        table.sides.callers(work, n, ragged=False)
        name = f"{work}, {n} callers"
        sides = {
            f"heddle, {which}": table.callers(
                f"{name}, {which} of the cards", work, n, cards=which, ragged=False
            )
            for which in ("one", "all")
        }
        rates = table.turns(f"{name} on cards", sides)
        quartiles = ratios.ratio(rates["heddle, all"], rates["heddle, one"])
        table.add(f"{name}: {count} cards / one", quartiles, 0.95 * count if has_bar else None)


def probe(table: Table) -> None:
    """Each number of callers in turn with the probe; one that the probe fails is refused alone."""
    path = figure_probe.program()
    if path is None:
        table.sides.left_out.append(f"probe: {figure_probe.NAMED_BY} names no program")
        return
    for n, outstanding, ways in figure_probe.CASES:
        case = f"{n} callers x {outstanding} outstanding" if outstanding else f"{n} callers"
        name = f"mlp, {case} beside the probe"
        sides = {"heddle": table.callers(name, "mlp", n, outstanding=outstanding)}
        sides |= {f"the probe, {asked}": partial(figure_probe.rate, path, asked) for asked in ways}
        try:
            table.sides.callers("mlp", n, outstanding=outstanding)  # warms up: the probe has all its graphs
            rates = table.turns(name, sides)
        except (Failed, figure_probe.Refused) as failed:
            table.sides.mistakes.append(f"probe, {case}: {failed}")
            continue
        table.over_best(f"MLP, {case}", rates["heddle"], rates, figure_probe.BAR)


def busy(table: Table) -> None:
    """The share of time that the card is busy: of Heddle's callers, and of PyTorch's best and its eager."""
    try:
        utilization = figure_busy.card()
    except figure_busy.Refused as refused:
        table.sides.left_out.append(f"busy: {refused}")
        return
    cases: dict[str, Side] = {}
    for work, n, outstanding, rows in figure_busy.CASES:
        more = {"outstanding": outstanding, "rows": rows}
        table.sides.callers(work, n, **more)  # warms up
        asked = partial(table.sides.callers, work, n, **more, seconds=figure_busy.SECONDS)
        name = f"{work}, {n} callers" + (f" x {outstanding} outstanding" if outstanding else "")
        name += f" of {rows} rows" if rows > 1 else ""
        cases[name] = lambda asked=asked: asked()["rows_per_s"]
    for kind, threads in (("eager", 8), ("graph", 4)):
        name = f"mlp, PyTorch {kind}, {threads} threads"
        if table.sides.first_try(name, table.sides.peer(kind, "mlp", threads)) is not None:
            cases[name] = partial(table.sides.rate, kind, "mlp", threads, seconds=figure_busy.SECONDS)
    for name, case in cases.items():
        table.busy[name] = figure_busy.share(utilization, case)
        print(f"{name}: the card is busy {table.busy[name].busy:.0%} of the time", flush=True)


ROWS: dict[str, Callable[[Table], None]] = {
    each.__name__: each
    for each in (
        callers,
        outstanding,
        one,
        encoder,
        python,
        offline,
        own_models,
        ragged,
        device,
        cards,
        probe,
        busy,
    )
}
