import gc
import weakref

from mixseek.orchestrator.collector import long_lived


class Node:
    def __init__(self) -> None:
        self.itself = self


def test_what_exists_is_spared_until_the_last_run_ends() -> None:
    before = gc.get_freeze_count()
    with long_lived():
        assert gc.get_freeze_count() > before
        with long_lived():
            pass
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0


def test_full_walks_are_rare_inside_and_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with long_lived():
        assert gc.get_threshold()[2] > before[2]
        with long_lived():
            pass
        assert gc.get_threshold()[2] > before[2]
    assert gc.get_threshold() == before


def test_what_is_made_inside_is_collected() -> None:
    with long_lived():
        gc.collect()
        for _ in range(100):
            Node()
        assert gc.collect() >= 100


def test_no_walk_of_everything_is_due_when_a_run_ends_and_a_later_one_finds_its_garbage() -> None:
    gc.collect()
    with long_lived():
        garbage = weakref.ref(Node())
        # Python 3.13 walks after 2000 new objects, and those before it after 700.
        young, middle, _ = gc.get_threshold()
        for _ in range(young * middle * (middle + 5)):
            Node()
        assert gc.get_count()[2] > middle
    assert gc.get_count()[2] == 0
    gc.collect()
    assert garbage() is None
