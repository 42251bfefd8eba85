"""What a run remembers of its finished episodes."""

from __future__ import annotations

from slsac.training.episodes import Episodes
from slsac.types import Episode


def episode(cost: float, length: int) -> Episode:
    return Episode(total_return=1.0, cost=cost, length=length, extras={})


def test_the_window_holds_the_last_episodes_and_all_are_counted() -> None:
    episodes = Episodes(window=2)
    for cost, length in ((1.0, 10), (2.0, 20), (3.0, 30)):
        episodes.add(episode(cost, length))
    assert (episodes.count, episodes.costs, episodes.lengths) == (3, [2.0, 3.0], [20, 30])


def test_a_restored_history_goes_on_as_the_first_would_have() -> None:
    first, second = Episodes(window=2), Episodes(window=2)
    first.add(episode(1.0, 10))
    second.restore(first.facts())
    for episodes in (first, second):
        episodes.add(episode(2.0, 20))
        episodes.add(episode(3.0, 30))
    assert second.facts() == first.facts()
    assert second.costs == [2.0, 3.0]


def test_a_checkpoint_from_before_lengths_were_kept_is_read() -> None:
    episodes = Episodes(window=2)
    episodes.restore({"episode": 7, "window": [4.0, 5.0]})
    assert (episodes.count, episodes.costs, episodes.lengths) == (7, [4.0, 5.0], [])


def test_a_span_keeps_the_episodes_that_ended_within_it() -> None:
    episodes = Episodes(window=2, span=100)
    for cost, length in enumerate([60, 50, 30, 10]):
        episodes.add(episode(float(cost), length))
    # Ended 90, 40, 10 and 0 steps ago.
    assert episodes.costs == [0.0, 1.0, 2.0, 3.0]
    episodes.add(episode(4.0, 10))
    assert episodes.costs == [1.0, 2.0, 3.0, 4.0]
    episodes.add(episode(5.0, 200))
    assert episodes.costs == [5.0]
    restored = Episodes(window=2, span=100)
    restored.restore(episodes.facts())
    assert (restored.costs, restored.lengths) == ([5.0], [200])
