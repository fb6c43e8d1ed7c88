"""Keys never reach the tables, whatever text they hide in."""

from pathlib import Path

import duckdb

from mixseek.records import MemberSubmission, MemberSubmissionsRecord
from mixseek.redaction import Redactor
from mixseek.storage.aggregation_store import AggregationStore

CANARY = "canary-7f3a9b2c4d5e6f"


async def test_a_known_key_is_marked_in_every_text_and_json_column(tmp_path: Path) -> None:
    said = f'my key is "{CANARY}" and Authorization: Bearer {CANARY}"'
    member = MemberSubmission(agent_name="m", agent_type="plain", content=said, status="SUCCESS")
    record = MemberSubmissionsRecord(
        execution_id="e", team_id="t", team_name=said, round_number=1, submissions=[member]
    )
    async with AggregationStore(tmp_path, redactor=Redactor([CANARY])) as store:
        await store.save_aggregation("e", record, [{"parts": [{"content": said}]}])
        await store.save_to_leader_board("e", "t", said, 1, said, "md", 50.0, {"metrics": [], "reason": said})
        await store.save_round_status("e", "t", said, 1, True, said, 0.5)
        await store.save_execution_summary("e", said, "completed", [{"submission_content": said}], 1)
        history, messages = await store.load_round_history("e", "t", 1)
        [entry] = await store.get_leader_board()
    assert history is not None
    assert "[redacted]" in history.submissions[0].content
    assert "[redacted]" in str(messages)
    assert "[redacted]" in entry["submission_content"]
    assert "[redacted]" in entry["score_details"]["reason"]
    with duckdb.connect(str(tmp_path / "mixseek.db")) as connection:
        connection.execute("CHECKPOINT")
    assert CANARY.encode() not in (tmp_path / "mixseek.db").read_bytes()


async def test_ordinary_text_is_kept_as_it_is(tmp_path: Path) -> None:
    text = "sk-learn is a library; task-7; ｓｋ; https://example.org/path"
    async with AggregationStore(tmp_path, redactor=Redactor([CANARY])) as store:
        await store.save_to_leader_board("e", "t", "T", 1, text, "md", 50.0, {"comment": text})
        [entry] = await store.get_leader_board()
    assert (entry["submission_content"], entry["score_details"]) == (text, {"comment": text})
