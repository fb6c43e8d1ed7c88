"""The prompts that are used where a workspace has none of its own."""

__all__ = ["DEFAULT_EVALUATOR_USER_PROMPT", "DEFAULT_JUDGMENT_USER_PROMPT", "DEFAULT_TEAM_USER_PROMPT"]

DEFAULT_TEAM_USER_PROMPT = """# ユーザから指定されたタスク
{{ user_prompt }}

{% if round_number > 1 %}
# 過去の提出履歴
{{ submission_history }}

{% if ranking_table %}
# 現在のチームランキング
現在のリーダーボードに基づく順位:

{{ ranking_table }}

{{ team_position_message }}
{% endif %}

# 今回のラウンドの目標
上記のフィードバックを基に提出内容を改善してください。これまでのラウンドで指摘された弱点に焦点を当てましょう。
{% else %}
現在はラウンド1です。過去のSubmissionとランキング情報はまだありません。
{% endif %}

---
現在日時: {{ current_datetime }}
"""

DEFAULT_EVALUATOR_USER_PROMPT = """# 評価タスク
以下の提出内容を、ユーザから指定されたタスクに対する適切性で評価してください。

# ユーザから指定されたタスク
{{ user_prompt }}

# 評価対象の提出内容
{{ submission }}

{% if reference %}
# 参照回答
採点の参考にする回答です。提出者には知らされていないので、コメントに書き写さないでください。
{{ reference }}

{% endif %}
---
現在日時: {{ current_datetime }}
"""

DEFAULT_JUDGMENT_USER_PROMPT = """# 継続判定タスク
ラウンド{{ round_number }}が終了しました。次のラウンドで提出内容の改善が見込めるかどうかを判定してください。

# ユーザから指定されたタスク
{{ user_prompt }}

# これまでの提出履歴
{{ submission_history }}

{% if ranking_table %}
# 現在のチームランキング
現在のリーダーボードに基づく順位:

{{ ranking_table }}

{{ team_position_message }}

{% endif %}
# 判定基準
- 継続: 指摘された弱点が残っており、次のラウンドでスコアの向上が見込める場合
- 終了: タスクに対して十分な回答が得られている、またはスコアが伸び悩み、これ以上の改善が見込めない場合

---
現在日時: {{ current_datetime }}
"""
