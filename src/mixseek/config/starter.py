"""The files ``config init`` writes: usable as they are, with every choice explained beside it."""

from datetime import UTC, datetime

from mixseek.config.kinds import KINDS, PROMPT_BUILDER, Kind
from mixseek.templating import DEFAULT_EVALUATOR_USER_PROMPT, DEFAULT_JUDGMENT_USER_PROMPT, DEFAULT_TEAM_USER_PROMPT

__all__ = ["needed_with", "starter_text"]

_ORCHESTRATOR = """\
# A competition: which teams take part, and the limits they play under.
# Paths start at the workspace. Every key may also be set as MIXSEEK_<KEY>, for example MIXSEEK_MAX_ROUNDS.

[orchestrator]
timeout_per_team_seconds = 300    # all rounds of a team together, 10 to 3600
max_concurrent_teams = 4          # teams that play at once
max_retries_per_team = 2          # further tries of a team that failed
max_rounds = 5                    # 1 to 10
# min_rounds = 2                  # before a judgment may stop a team; at most max_rounds
submission_timeout_seconds = 300  # one submission
judgment_timeout_seconds = 60     # one judgment

# Without these the files below configs/ are read, or the defaults hold.
# evaluator_config = "configs/evaluator.toml"
# judgment_config = "configs/judgment.toml"
# prompt_builder_config = "configs/prompt_builder.toml"

[[orchestrator.teams]]
config = "configs/agents/team.toml"

# [[orchestrator.teams]]
# config = "configs/agents/another-team.toml"

# [storage]
# lock_wait_seconds = 60          # wait for another process that holds the database
"""

_TEAM = """\
# A team: a leader, and members it can call as tools. Without members the leader answers alone.

[team]
team_id = "team-1"
team_name = "Team 1"
max_concurrent_members = 15       # most members, and most of their calls at once

[team.leader]
model = "google-gla:gemini-2.5-flash-lite"
# system_instruction = "..."      # absent: the default text; "": none
# temperature = 0.7               # 0 to 2
# max_tokens = 4096
timeout_seconds = 300
max_retries = 3

[[team.members]]
name = "analyst"
type = "plain"                    # plain, web_search, web_fetch, code_execution or custom
tool_description = "Thinks a question through and answers with its reasons."
model = "google-gla:gemini-2.5-flash-lite"
system_instruction = "You are a careful analyst. Answer the task you are given, with reasons."

# A member may also have a file of its own; beside it only tool_name and tool_description may stand.
# [[team.members]]
# config = "configs/agents/member.toml"
# tool_name = "ask_researcher"
"""

_MEMBER = """\
# A member that several teams can share: [[team.members]] config = "configs/agents/member.toml"

[agent]
name = "researcher"
type = "plain"                    # plain, web_search, web_fetch, code_execution or custom
description = "Looks at one part of the task in depth."
model = "google-gla:gemini-2.5-flash-lite"
system_instruction = "You are a researcher. Answer the part of the task you are given, and say how sure you are."
# temperature = 0.2               # 0 to 2
# max_tokens = 4096
max_retries = 3

# A custom member is a class of yours, a subclass of mixseek.agents.member.BaseMemberAgent:
# type = "custom"
# plugin = { path = "agents/my_agent.py", agent_class = "MyAgent" }
"""

_EVALUATOR = """\
# How submissions are scored. Keys may also be set as MIXSEEK_EVALUATOR__<KEY>.

default_model = "google-gla:gemini-2.5-flash"
max_retries = 3
timeout_seconds = 300

# Parameters of every metric that does not set its own.
# [llm_default]
# temperature = 0.0

# All weights or none; they sum to 1.
[[metrics]]
name = "ClarityCoherence"
weight = 0.334

[[metrics]]
name = "Coverage"
weight = 0.333

[[metrics]]
name = "Relevance"
weight = 0.333

# Any other name with a system_instruction is asked of the model:
# [[metrics]]
# name = "Tone"
# system_instruction = "Score how friendly the answer is."

# A metric of your own, a subclass of mixseek.evaluator.metrics.BaseMetric:
# [custom_metrics]
# Brevity = { path = "metrics/brevity.py", class = "Brevity" }
"""

_JUDGMENT = """\
# Whether another round is worth its money. Keys may also be set as MIXSEEK_JUDGMENT__<KEY>.

model = "google-gla:gemini-2.5-flash"   # "none": only the rules below
temperature = 0.0
max_retries = 3
timeout_seconds = 60
judge_on_final_round = true             # recorded only; it never changes the outcome

# target_score = 95.0                   # stop when a round reaches this score
# plateau_rounds = 2                    # stop after so many rounds without a gain ...
# plateau_min_gain = 1.0                # ... of more than so much
"""

_PROVIDERS = """\
# Servers of models that speak the OpenAI protocol. The name becomes a model prefix: "my-server:some-model".
# Keys never stand here: api_key_env names the environment variable that holds one.

[providers.my-server]
base_url = "http://localhost:8000/v1"
# api_key_env = "MY_SERVER_API_KEY"
# max_concurrency = 8
# requests_per_minute = 300
api = "chat"                            # or "responses"
"""

_PROMPT_BUILDER = '''\
# UserPromptBuilder 設定ファイル
# 生成日時: {date}

[prompt_builder]
# language = "ja"                 # MixSeekがモデルに伝えるほかの文章の言語（"ja" または "en"）

# Teamに渡すユーザプロンプトのJinja2テンプレート
# 利用可能なプレースホルダー変数:
#   - {{{{ user_prompt }}}}            : 元のユーザプロンプト
#   - {{{{ round_number }}}}            : 現在のラウンド番号（整数）
#   - {{{{ submission_history }}}}      : 過去のSubmission履歴（整形済み文字列）
#   - {{{{ ranking_table }}}}           : Leader Boardランキング情報（整形済み文字列）
#   - {{{{ team_position_message }}}}   : チーム順位メッセージ（整形済み文字列）
#   - {{{{ current_datetime }}}}        : 現在日時（ISO 8601形式、タイムゾーン付き）
#
# 注意:
#   - すべてのプレースホルダー変数は、UserPromptBuilder内で事前に整形されます
#   - テンプレート内でforループやフィルタを使用することは推奨されません
#   - 環境変数TZでタイムゾーンを設定できます（デフォルト: UTC）

team_user_prompt = """
{team}"""

# Evaluatorに渡すユーザプロンプトのJinja2テンプレート
# 利用可能なプレースホルダー変数:
#   - {{{{ user_prompt }}}}            : 元のユーザプロンプト
#   - {{{{ submission }}}}              : 評価対象のエージェント提出内容
#   - {{{{ reference }}}}               : 参照回答（use_reference = true のメトリックだけ。ほかは空文字列）
#   - {{{{ current_datetime }}}}        : 現在日時（ISO 8601形式、タイムゾーン付き）

evaluator_user_prompt = """
{evaluator}"""

# Judgmentに渡すユーザプロンプトのJinja2テンプレート
# 利用可能なプレースホルダー変数: team_user_prompt と同じ

judgment_user_prompt = """
{judgment}"""

# 過去のラウンドから引き継ぐ量の上限（このテーブルがなければ上限なし）
# [prompt_builder.round_prompt]
# max_submission_history_items = 5
# max_leaderboard_display_teams = 10
# submission_preview_chars = 200
# enable_trend_analysis = true
# estimated_prompt_tokens = 3000
'''

_TEXTS = {
    "orchestrator": _ORCHESTRATOR,
    "team": _TEAM,
    "member": _MEMBER,
    "evaluator": _EVALUATOR,
    "judgment": _JUDGMENT,
    "providers": _PROVIDERS,
}


def starter_text(kind: Kind) -> str:
    """A file of this kind to start from."""
    return _prompt_builder() if kind is PROMPT_BUILDER else _TEXTS[kind.name]


def needed_with(kind: Kind) -> list[Kind]:
    """The file itself and those without which it would not be valid."""
    return [kind, KINDS["team"]] if kind.name == "orchestrator" else [kind]


def _prompt_builder() -> str:
    return _PROMPT_BUILDER.format(
        date=datetime.now(UTC).date(),
        team=_in_toml(DEFAULT_TEAM_USER_PROMPT),
        evaluator=_in_toml(DEFAULT_EVALUATOR_USER_PROMPT),
        judgment=_in_toml(DEFAULT_JUDGMENT_USER_PROMPT),
    )


def _in_toml(text: str) -> str:
    """A text inside triple quotes; the line break after the opening ones is not part of it."""
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
