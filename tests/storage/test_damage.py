"""A few of the damages that ``python -m soak.damage`` does in large numbers: nothing is lost without a word."""

from pathlib import Path

import pytest

from soak.damage import Case, killed_workspace, lost_by, lost_by_a_full_disk


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return killed_workspace(tmp_path_factory.mktemp("killed"))


@pytest.mark.parametrize(
    "case",
    [
        Case("mixseek.db.wal", "cut", 0.5),
        Case("mixseek.db.wal", "zeroed", 0.3),
        Case("mixseek.db.wal", "flipped", 0.7, 3),
        Case("mixseek.db.wal", "flipped", 0.0, 1),
        Case("journal.db-wal", "cut", 0.5),
        Case("journal.db-wal", "zeroed", 0.9),
        Case("journal.db-wal", "flipped", 0.6, 5),
        Case("mixseek.db", "zeroed", 0.0),
        Case("mixseek.db", "cut", 0.39),
        Case("mixseek.db", "cut", 0.78),
        Case("mixseek.db", "flipped", 0.46, 3),
        Case("mixseek.db", "deleted", 0),
    ],
    ids=str,
)
def test_a_damaged_file_is_opened_completed_or_named(case: Case, killed: Path) -> None:
    assert lost_by(case, killed) == []


@pytest.mark.parametrize("size", [50_000, 300_000])
def test_a_disk_that_is_full_costs_nothing_that_was_acknowledged(size: int) -> None:
    assert lost_by_a_full_disk(size) == []
