"""Replays of logs, over a model of two threads that take one place in turn: what is an execution."""

import shutil
from pathlib import Path

import pytest
import replay_models
from replay_models import Replay

MODEL = """// toy.pml
//   Replay turns: no_program
//   Replay steps: no_program
#include "replay.inc"
byte place, over;
proctype Taker(byte me) {
  STEP(place_take, me, 0, atomic { place == 0 -> place = me + 1 });
  STEP(place_give_back, me, place, place = 0);
  over++
}
init {
  REPLAY_BEGIN;
  atomic { run Taker(0); run Taker(1) }
  over == 2;
  REPLAY_END
}
"""
IN_TURN = "0 place.take 0\n0 place.give_back 1\n1 place.take 0\n1 place.give_back 2\n"
OTHERWISE = "1 place.take 0\n1 place.give_back 2\n0 place.take 0\n0 place.give_back 1\n"


def outcome_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *logs: str) -> replay_models.Outcome:
    models = tmp_path / "models"
    models.mkdir()
    shutil.copy(replay_models.MODELS / "replay.inc", models)
    (models / "toy.pml").write_text(MODEL, encoding="utf-8")
    monkeypatch.setattr(replay_models, "MODELS", models)
    monkeypatch.setattr(replay_models, "WORK", tmp_path / "work")
    (tmp_path / "logs").mkdir()
    text = "".join(f"seed {i}\n{log}" for i, log in enumerate(logs, 1))
    (tmp_path / "logs" / "toy.turns.log").write_text(text, encoding="utf-8")
    return replay_models.replay(Replay(models / "toy.pml", "turns", "no_program", []), tmp_path / "logs")


def test_logs_of_either_order_are_executions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = outcome_of(tmp_path, monkeypatch, IN_TURN, OTHERWISE)
    assert outcome.wrong == ""
    assert (outcome.logs, outcome.steps) == (2, 8)
    assert outcome.names == {"place_take", "place_give_back"}


@pytest.mark.parametrize(
    ("log", "told"),
    [
        # Both have the place at once.
        ("0 place.take 0\n1 place.take 0\n", "the model cannot do\n        process 1: place_take 0"),
        (
            "0 place.take 0\n0 place.give_back 2\n",
            "cannot do\n        process 0: place_give_back 2",
        ),
        ("0 place.take 0\n0 place.give_back 1\n", "do not end without more steps"),
        ("0 place.lose 0\n", "toy.pml has no STEP for place_lose"),
    ],
    ids=["order", "value", "end", "unknown"],
)
def test_what_is_no_execution_is_shown_with_what_the_model_cannot_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str, told: str
) -> None:
    assert told in outcome_of(tmp_path, monkeypatch, IN_TURN, log).wrong


def test_a_step_that_no_log_has_is_told_unless_its_line_says_why(tmp_path: Path) -> None:
    model = tmp_path / "toy.pml"
    lines = "STEP(one, me, 0, skip)\nSTEP(two, me, 0, skip)  // not replayed: none\n"
    model.write_text(lines, encoding="utf-8")
    silent = replay_models.Outcome("toy turns", names=set())
    replay = Replay(model, "turns", "no_program", [])
    assert replay_models.silent_steps([(replay, silent)]) == ["toy.pml:1: no log has one"]
    silent.names = {"one"}
    assert replay_models.silent_steps([(replay, silent)]) == []
