"""Results of mixseek-core 0.1: they open, and teams stand where they stood."""

import random
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mixseek.storage.aggregation_store import AggregationStore
from tests.storage.old_schema import OLD

EXECUTIONS = ("e-1", "e-2", "e-3")

# What the old system ranked by, said in SQL: best score, then latest round, then name.
RANKING = """
    SELECT team_id, arg_max(team_name, round_number), max(score), count(*) FROM leader_board WHERE execution_id = ?
    GROUP BY team_id ORDER BY max(score) DESC, max(round_number) DESC, team_id
"""


def rows(seed: int) -> list[tuple[Any, ...]]:
    """Rounds of a dozen teams with few different scores, so that many of them are level."""
    chance = random.Random(seed)
    scores = [round(chance.uniform(0, 100), 2) for _ in range(8)]
    return [
        (execution, f"team-{team:02}", f"Team {team} チーム", number, f"answer {number}", chance.choice(scores))
        for execution in EXECUTIONS
        for team in range(12)
        for number in range(1, chance.randint(1, 5) + 1)
    ]


def write_old_file(path: Path, seed: int) -> dict[str, list[tuple[Any, ...]]]:
    """An old file, and how its teams stood before anyone but the old system opened it."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(OLD)
        connection.executemany(
            "INSERT INTO leader_board (execution_id, team_id, team_name, round_number, submission_content, score,"
            " score_details) VALUES (?, ?, ?, ?, ?, ?, '{}')",
            rows(seed),
        )
        return {each: connection.execute(RANKING, [each]).fetchall() for each in EXECUTIONS}


@pytest.mark.parametrize("seed", range(3))
async def test_teams_of_an_old_file_rank_as_they_did(seed: int, tmp_path: Path) -> None:
    before = write_old_file(tmp_path / "mixseek.db", seed)
    async with AggregationStore(tmp_path) as store:
        for execution, standings in before.items():
            ranking = await store.get_leader_board_ranking(execution)
            assert [(team["team_id"], team["team_name"], team["total_rounds"]) for team in ranking] == [
                (team_id, name, rounds) for team_id, name, _, rounds in standings
            ]
            # A FLOAT of the old file that said 85.57 says 85.57 here, not its nearest DOUBLE.
            assert [team["max_score"] for team in ranking] == [round(score, 2) for _, _, score, _ in standings]


async def test_an_old_file_takes_new_rounds_and_its_old_ones_stay(tmp_path: Path) -> None:
    before = write_old_file(tmp_path / "mixseek.db", seed=7)
    async with AggregationStore(tmp_path) as store:
        await store.save_to_leader_board("e-1", "new", "New", 1, "answer", "md", 100.0, {})
        ranking = await store.get_leader_board_ranking("e-1")
        board = await store.get_leader_board(limit=None)
    assert [team["team_id"] for team in ranking] == ["new", *(team_id for team_id, *_ in before["e-1"])]
    assert len(board) == len(rows(7)) + 1
