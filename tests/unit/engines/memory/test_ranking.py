"""A ranking says what sorting all of it would say."""

from __future__ import annotations

import random

from leasectl.engines.memory.ranking import Ranking


def test_it_agrees_with_sorting_whatever_is_done() -> None:
    chance = random.Random(5)
    ranking, model = Ranking(), dict[str, float]()
    for _ in range(5000):
        name = f"n{chance.randrange(40)}"
        action = chance.random()
        if action < 0.55:
            model[name] = chance.randrange(10)
            ranking.put(name, model[name])
        elif action < 0.8:
            model.pop(name, None)
            ranking.drop(name)
        else:
            count = chance.randrange(4)
            expected = sorted(model, key=lambda each: (model[each], each))[:count]
            assert ranking.take(count) == expected
            for each in expected:
                del model[each]
        order = sorted((rank, each) for each, rank in model.items())
        assert ranking.first() == (order[0] if order else None)
        assert len(ranking) == len(model)


def test_what_was_taken_out_and_put_back_is_there_once() -> None:
    ranking = Ranking()
    for _ in range(3):
        ranking.put("a", 0)
        ranking.drop("a")
    ranking.put("a", 0)
    assert ranking.take(2) == ["a"]


def test_it_does_not_grow_with_what_is_put_again_and_again() -> None:
    ranking = Ranking()
    ranking.put("first", -1.0)
    for time in range(10_000):
        ranking.put("renewed", float(time))
    assert len(ranking._heap) < 200
    assert ranking.take(2) == ["first", "renewed"]
