# ruff: noqa: E501  # messages are quoted whole, as a user sees them
"""A corpus of broken files, each with all that a user is told about it."""

import time
from pathlib import Path
from typing import NamedTuple

import pytest

from mixseek.cli import main
from mixseek.metrics import BUILT_IN_METRICS

ONE_TEAM = '[[orchestrator.teams]]\nconfig = "configs/agents/team.toml"\n'
TEAM = '[team]\nteam_id = "t"\nteam_name = "T"\n'
MEMBER = 'name = "a"\ntype = "plain"\nmodel = "openai:gpt-5-mini"\n'
AGENT = "[agent]\n" + MEMBER
PROMPTS = """\
[prompt_builder]
team_user_prompt = "{{ user_prompt }}"
evaluator_user_prompt = "{{ submission }}"
judgment_user_prompt = "{{ submission_history }}"
"""
MEMBERS = """\
from mixseek.agents.member.base import BaseMemberAgent
class Abstract(BaseMemberAgent): pass
class Blocking(BaseMemberAgent):
    def execute(self, task, context=None, **more): ...
class Alone(BaseMemberAgent):
    def __init__(self): ...
    async def execute(self, task, context=None, **more): ...
"""
METRICS = """\
from pydantic import Field
from mixseek.evaluator.metrics.base import BaseMetric, MetricOptions
class Abstract(BaseMetric): pass
class Blocking(BaseMetric):
    def evaluate(self, user_query, submission, **more): ...
class Renaming(BaseMetric):
    async def evaluate(self, question, submission): ...
class Limited(BaseMetric):
    def __init__(self, limit): ...
    async def evaluate(self, user_query, submission, **more): ...
class Modelled(BaseMetric):
    class Options(MetricOptions):
        most: int = Field(default=3, ge=1)
    def __init__(self, options): ...
    async def evaluate(self, user_query, submission, **more): ...
"""


class Case(NamedTuple):
    """A file, its contents, and the lines on standard error behind ``mixseek:``."""

    name: str
    file: str
    text: str | bytes
    told: list[str]


CASES = [
    Case(
        "a_value_is_missing",
        "configs/evaluator.toml",
        "default_model =\n",
        ["configs/evaluator.toml: not valid TOML: line 1, column 16: invalid value"],
    ),
    Case(
        "a_string_is_not_closed",
        "configs/evaluator.toml",
        'default_model = "openai:gpt\n',
        ["configs/evaluator.toml: not valid TOML: line 1: a text is not closed: the quote at its end is missing"],
    ),
    Case(
        "a_list_is_not_closed",
        "configs/evaluator.toml",
        "x = 1\nmetrics = [\n",
        ["configs/evaluator.toml: not valid TOML: at the end: invalid value"],
    ),
    Case(
        "a_key_stands_twice",
        "configs/judgment.toml",
        "temperature = 0.1\ntemperature = 0.2\n",
        ["configs/judgment.toml: not valid TOML: line 2: temperature is set a second time: keep one of the two"],
    ),
    Case(
        "a_table_stands_twice",
        "configs/orchestrator.toml",
        "[orchestrator]\nmax_rounds = 3\n[orchestrator]\n" + ONE_TEAM,
        ["configs/orchestrator.toml: not valid TOML: line 3, column 14: cannot declare orchestrator twice"],
    ),
    Case(
        "a_word_has_no_quotes",
        "configs/judgment.toml",
        "model = openai\n",
        ["configs/judgment.toml: not valid TOML: line 1, column 9: invalid value"],
    ),
    Case(
        "a_number_is_too_long",
        "configs/judgment.toml",
        "seed = " + "9" * 5000 + "\n",
        ["configs/judgment.toml: not valid TOML: a number is too long"],
    ),
    Case(
        "a_key_has_forty_thousand_characters",
        "configs/evaluator.toml",
        "a." * 20000 + "b = 1\n",
        ["configs/evaluator.toml: line 1: a key with more than 32 dotted parts; split it into tables"],
    ),
    Case(
        "a_table_name_has_forty_thousand_characters",
        "configs/evaluator.toml",
        "[" + "a." * 20000 + "b]\n",
        ["configs/evaluator.toml: line 1: a key with more than 32 dotted parts; split it into tables"],
    ),
    Case(
        "many_long_keys",
        "configs/evaluator.toml",
        "\n".join("a." * 300 + f"b{i} = 1" for i in range(1500)),
        ["configs/evaluator.toml: line 1: a key with more than 32 dotted parts; split it into tables"],
    ),
    Case(
        "lists_are_nested_deeply",
        "configs/evaluator.toml",
        "x = " + "[" * 5000 + "]" * 5000 + "\n",
        ["configs/evaluator.toml: tables or lists are nested too deeply; flatten them"],
    ),
    Case(
        "tables_are_nested_deeply",
        "configs/evaluator.toml",
        "x = " + "{a = " * 3000 + "1" + "}" * 3000 + "\n",
        ["configs/evaluator.toml: tables or lists are nested too deeply; flatten them"],
    ),
    Case(
        "the_file_is_over_a_megabyte",
        "configs/evaluator.toml",
        "# " + "x" * 1000000 + "\n",
        ["configs/evaluator.toml: is larger than 1,000,000 bytes, which no configuration file should be"],
    ),
    Case(
        "the_file_is_not_utf8",
        "configs/evaluator.toml",
        b'# ok\ndefault_model = "\xff\xfe"\n',
        ["configs/evaluator.toml: not UTF-8 text (line 2); save the file as UTF-8"],
    ),
    Case(
        "the_file_is_utf16",
        "configs/evaluator.toml",
        'default_model = "openai:x"\n'.encode("utf-16"),
        ["configs/evaluator.toml: not UTF-8 text (line 1); save the file as UTF-8"],
    ),
    Case(
        "the_file_is_binary",
        "configs/evaluator.toml",
        bytes(range(32)) * 10,
        ["configs/evaluator.toml: not valid TOML: line 1, column 1: invalid statement"],
    ),
    Case(
        "the_kind_is_unclear",
        "configs/thing.toml",
        "[something]\nx = 1\n",
        [
            "configs/thing.toml: the kind of file is unclear: none of [orchestrator], [team], [agent], [prompt_builder], [providers] is in it, nor a key of an evaluator or judgment file"
        ],
    ),
    Case(
        "the_table_has_a_slip",
        "configs/thing.toml",
        "[orchestratr]\nmax_rounds = 3\n",
        ["configs/thing.toml: the kind of file is unclear: [orchestratr] is unknown; did you mean [orchestrator]?"],
    ),
    Case(
        "the_file_is_empty",
        "configs/thing.toml",
        "",
        [
            "configs/thing.toml: the kind of file is unclear: none of [orchestrator], [team], [agent], [prompt_builder], [providers] is in it, nor a key of an evaluator or judgment file"
        ],
    ),
    Case(
        "two_kinds_in_one_file",
        "configs/thing.toml",
        TEAM + "[agent]\n" + MEMBER,
        ["configs/thing.toml: has [team] and [agent]: keep each in a file of its own"],
    ),
    Case(
        "no_orchestrator_table",
        "configs/orchestrator.toml",
        "max_rounds = 3\n",
        [
            "configs/orchestrator.toml: there is no [orchestrator] table, which holds the settings of this kind of file",
            "configs/orchestrator.toml: max_rounds: unknown key at the top level: it belongs into [orchestrator]",
            "configs/orchestrator.toml: orchestrator.teams: is required: a list, each a table (The teams that take part)",
        ],
    ),
    Case(
        "the_orchestrator_is_no_table",
        "configs/orchestrator.toml",
        "orchestrator = 3\n",
        [
            "configs/orchestrator.toml: orchestrator: has to be a table",
            "configs/orchestrator.toml: orchestrator.teams: is required: a list, each a table (The teams that take part)",
        ],
    ),
    Case(
        "no_teams",
        "configs/orchestrator.toml",
        "[orchestrator]\nmax_rounds = 3\n",
        ["configs/orchestrator.toml: orchestrator.teams: is required: a list, each a table (The teams that take part)"],
    ),
    Case(
        "an_empty_list_of_teams",
        "configs/orchestrator.toml",
        "[orchestrator]\nteams = []\n",
        ["configs/orchestrator.toml: orchestrator.teams: is empty: at least one is needed"],
    ),
    Case(
        "a_team_without_a_file",
        "configs/orchestrator.toml",
        '[[orchestrator.teams]]\nconfg = "configs/agents/team.toml"\n',
        [
            "configs/orchestrator.toml: orchestrator.teams[0].config: is required: a path (Path of its team file)",
            'configs/orchestrator.toml: orchestrator.teams[0].confg: unknown key; did you mean "config"?',
        ],
    ),
    Case(
        "teams_are_texts",
        "configs/orchestrator.toml",
        '[orchestrator]\nteams = ["configs/agents/team.toml"]\n',
        [
            "configs/orchestrator.toml: orchestrator.teams[0]: 'configs/agents/team.toml' is not allowed: "
            'must be a table, as in {config = "configs/agents/team.toml"}'
        ],
    ),
    Case(
        "a_team_file_is_missing",
        "configs/orchestrator.toml",
        ONE_TEAM + '[[orchestrator.teams]]\nconfig = "configs/agents/other.toml"\n',
        [
            "configs/orchestrator.toml: orchestrator.teams[1].config: file 'configs/agents/other.toml' does not exist: paths start at the workspace"
        ],
    ),
    Case(
        "a_team_file_is_a_directory",
        "configs/orchestrator.toml",
        '[[orchestrator.teams]]\nconfig = "configs/agents"\n',
        [
            "configs/agents: is a directory, not a file (named in configs/orchestrator.toml: orchestrator.teams[0].config)"
        ],
    ),
    Case(
        "the_same_team_twice",
        "configs/orchestrator.toml",
        ONE_TEAM + ONE_TEAM,
        [
            "configs/orchestrator.toml: orchestrator.teams[1].config: team_id 't' is also that of configs/orchestrator.toml: orchestrator.teams[0].config: give each team its own"
        ],
    ),
    Case(
        "an_evaluator_file_is_missing",
        "configs/orchestrator.toml",
        '[orchestrator]\nevaluator_config = "configs/nope.toml"\njudgment_config = "configs/nada.toml"\n' + ONE_TEAM,
        [
            "configs/orchestrator.toml: orchestrator.evaluator_config: file 'configs/nope.toml' does not exist: paths start at the workspace",
            "configs/orchestrator.toml: orchestrator.judgment_config: file 'configs/nada.toml' does not exist: paths start at the workspace",
        ],
    ),
    Case(
        "too_many_rounds",
        "configs/orchestrator.toml",
        "[orchestrator]\nmax_rounds = 11\n" + ONE_TEAM,
        ["configs/orchestrator.toml: orchestrator.max_rounds: 11 is not allowed: must be a whole number from 1 to 10"],
    ),
    Case(
        "no_rounds",
        "configs/orchestrator.toml",
        "[orchestrator]\nmax_rounds = 0\n" + ONE_TEAM,
        ["configs/orchestrator.toml: orchestrator.max_rounds: 0 is not allowed: must be a whole number from 1 to 10"],
    ),
    Case(
        "more_least_rounds_than_most",
        "configs/orchestrator.toml",
        "[orchestrator]\nmax_rounds = 3\nmin_rounds = 4\n" + ONE_TEAM,
        ["configs/orchestrator.toml: orchestrator.min_rounds: min_rounds (4) must be <= max_rounds (3)"],
    ),
    Case(
        "rounds_as_text",
        "configs/orchestrator.toml",
        '[orchestrator]\nmax_rounds = "5"\n' + ONE_TEAM,
        ["configs/orchestrator.toml: orchestrator.max_rounds: '5' is not allowed: must be a whole number from 1 to 10"],
    ),
    Case(
        "rounds_as_a_fraction",
        "configs/orchestrator.toml",
        "[orchestrator]\nmax_rounds = 2.5\n" + ONE_TEAM,
        ["configs/orchestrator.toml: orchestrator.max_rounds: 2.5 is not allowed: must be a whole number from 1 to 10"],
    ),
    Case(
        "rounds_as_a_truth",
        "configs/orchestrator.toml",
        "[orchestrator]\nmax_rounds = true\n" + ONE_TEAM,
        [
            "configs/orchestrator.toml: orchestrator.max_rounds: true is not allowed: must be a whole number from 1 to 10"
        ],
    ),
    Case(
        "a_team_has_too_little_time",
        "configs/orchestrator.toml",
        "[orchestrator]\ntimeout_per_team_seconds = 9\n" + ONE_TEAM,
        [
            "configs/orchestrator.toml: orchestrator.timeout_per_team_seconds: 9 is not allowed: must be a whole number from 10 to 3600"
        ],
    ),
    Case(
        "a_slip_in_a_key",
        "configs/orchestrator.toml",
        "[orchestrator]\nmax_round = 5\n" + ONE_TEAM,
        ['configs/orchestrator.toml: orchestrator.max_round: unknown key; did you mean "max_rounds"?'],
    ),
    Case(
        "a_key_nobody_knows",
        "configs/orchestrator.toml",
        "[orchestrator]\nzzz = 5\n" + ONE_TEAM,
        [
            "configs/orchestrator.toml: orchestrator.zzz: unknown key; known are answer_schema, evaluator_config, judgment_config, judgment_timeout_seconds, max_concurrent_teams, max_retries_per_team, max_rounds, min_rounds, prompt_builder_config, reference, submission_timeout_seconds, teams, timeout_per_team_seconds"
        ],
    ),
    Case(
        "a_budget_of_nothing",
        "configs/orchestrator.toml",
        "[orchestrator]\n" + ONE_TEAM + "[budget]\nmax_cost_usd = 0\nmax_tokens = -1\n",
        [
            "configs/orchestrator.toml: budget.max_cost_usd: 0 is not allowed: must be a number above 0 up to 1000000000",
            "configs/orchestrator.toml: budget.max_tokens: -1 is not allowed: must be a whole number from 1 to 9007199254740992",
        ],
    ),
    Case(
        "a_budget_in_the_wrong_table",
        "configs/orchestrator.toml",
        "[orchestrator.budget]\nmax_tokens = 5\n" + ONE_TEAM,
        ["configs/orchestrator.toml: orchestrator.budget: stands beside [orchestrator], not inside: write [budget]"],
    ),
    Case(
        "a_price_of_no_model",
        "configs/orchestrator.toml",
        ONE_TEAM + "[prices.gpt]\ninput_usd_per_million = 1\noutput_usd_per_million = nan\n",
        [
            "configs/orchestrator.toml: prices.gpt.output_usd_per_million: nan is not allowed: must be a number from 0 to 1000000000",
            'configs/orchestrator.toml: prices.gpt: \'gpt\' does not name a model: write "provider:name", as in "openai:gpt-5-mini"',
        ],
    ),
    Case(
        "a_price_that_no_sum_could_hold",
        "configs/orchestrator.toml",
        ONE_TEAM + '[prices."openai:gpt-5"]\ninput_usd_per_million = 1e308\noutput_usd_per_million = 1\n',
        [
            'configs/orchestrator.toml: prices."openai:gpt-5".input_usd_per_million: 1e+308 is not allowed: must be a number from 0 to 1000000000'
        ],
    ),
    Case(
        "a_price_without_output",
        "configs/orchestrator.toml",
        ONE_TEAM + '[prices."openai:gpt-5"]\ninput_usd_per_million = 1\n',
        [
            'configs/orchestrator.toml: prices."openai:gpt-5".output_usd_per_million: is required: a number from 0 to 1000000000 (US dollars for a million tokens out)'
        ],
    ),
    Case(
        "a_wait_below_zero",
        "configs/orchestrator.toml",
        ONE_TEAM + "[storage]\nlock_wait_seconds = -1\n",
        ["configs/orchestrator.toml: storage.lock_wait_seconds: -1 is not allowed: must be a number from 0 to 86400"],
    ),
    Case(
        "a_table_with_a_slip",
        "configs/orchestrator.toml",
        ONE_TEAM + "[storag]\nlock_wait_seconds = 1\n",
        ["configs/orchestrator.toml: storag: unknown key; did you mean [storage]?"],
    ),
    Case(
        "an_answer_schema_that_is_missing",
        "configs/orchestrator.toml",
        '[orchestrator]\nanswer_schema = "schemas/a.json"\nreference = "answers/a.md"\n' + ONE_TEAM,
        [
            "configs/orchestrator.toml: orchestrator.answer_schema: file 'schemas/a.json' does not exist: paths start at the workspace",
            "configs/orchestrator.toml: orchestrator.reference: file 'answers/a.md' does not exist: paths start at the workspace",
        ],
    ),
    Case(
        "an_answer_schema_that_is_no_json",
        "configs/orchestrator.toml",
        '[orchestrator]\nanswer_schema = "configs/agents/team.toml"\n' + ONE_TEAM,
        [
            "configs/orchestrator.toml: orchestrator.answer_schema: file 'configs/agents/team.toml' is not JSON: Expecting value: line 1 column 2 (char 1)"
        ],
    ),
    Case(
        "a_key_outside_its_table",
        "configs/orchestrator.toml",
        "max_rounds = 3\n[orchestrator]\n" + ONE_TEAM,
        ["configs/orchestrator.toml: max_rounds: unknown key at the top level: it belongs into [orchestrator]"],
    ),
    Case(
        "a_workspace_in_the_file",
        "configs/orchestrator.toml",
        '[orchestrator]\nworkspace_path = "/srv"\n' + ONE_TEAM,
        ["configs/orchestrator.toml: orchestrator.workspace_path: is not set in a file: take it out"],
    ),
    Case(
        "everything_at_once",
        "configs/orchestrator.toml",
        '[orchestrator]\nmax_rounds = 99\nmin_rouns = 1\nevaluator_config = "gone.toml"\n'
        + ONE_TEAM
        + '[[orchestrator.teams]]\nconfig = "configs/agents/gone.toml"\n',
        [
            "configs/orchestrator.toml: orchestrator.max_rounds: 99 is not allowed: must be a whole number from 1 to 10",
            'configs/orchestrator.toml: orchestrator.min_rouns: unknown key; did you mean "min_rounds"?',
            "configs/orchestrator.toml: orchestrator.teams[1].config: file 'configs/agents/gone.toml' does not exist: paths start at the workspace",
            "configs/orchestrator.toml: orchestrator.evaluator_config: file 'gone.toml' does not exist: paths start at the workspace",
        ],
    ),
    Case(
        "a_team_without_an_id",
        "configs/agents/x.toml",
        '[team]\nteam_name = "T"\n',
        ["configs/agents/x.toml: team.team_id: is required: text (Identifies the team; unique in a run)"],
    ),
    Case(
        "a_team_with_an_empty_name",
        "configs/agents/x.toml",
        '[team]\nteam_id = "t"\nteam_name = " "\n',
        ["configs/agents/x.toml: team.team_name: cannot be empty"],
    ),
    Case(
        "too_many_members",
        "configs/agents/x.toml",
        TEAM
        + "max_concurrent_members = 1\n"
        + "".join(f'[[team.members]]\nname = "m{i}"\ntype = "plain"\nmodel = "ollama:b"\n' for i in range(3)),
        [
            "configs/agents/x.toml: team.members: there are 3, but max_concurrent_members is 1: take some out or raise it (at most 50)"
        ],
    ),
    Case(
        "room_for_too_many_members",
        "configs/agents/x.toml",
        TEAM + "max_concurrent_members = 51\n",
        ["configs/agents/x.toml: team.max_concurrent_members: 51 is not allowed: must be a whole number from 1 to 50"],
    ),
    Case(
        "two_members_of_one_name",
        "configs/agents/x.toml",
        TEAM + ("[[team.members]]\n" + MEMBER) * 2,
        ["configs/agents/x.toml: team.members: member name 'a' is used 2 times: give each its own"],
    ),
    Case(
        "two_tools_of_one_name",
        "configs/agents/x.toml",
        TEAM
        + "[[team.members]]\n"
        + MEMBER
        + 'tool_name = "ask"\n[[team.members]]\n'
        + MEMBER.replace('"a"', '"b"')
        + 'tool_name = "ask"\n',
        ["configs/agents/x.toml: team.members: tool name 'ask' is used 2 times: give each its own"],
    ),
    Case(
        "a_tool_with_a_space",
        "configs/agents/x.toml",
        TEAM + "[[team.members]]\n" + MEMBER + 'tool_name = "ask me"\n',
        [
            "configs/agents/x.toml: team.members[0].tool_name: 'ask me' is no tool name: letters, digits, _ and -, at most 64, a letter or _ first"
        ],
    ),
    Case(
        "a_member_of_unknown_type",
        "configs/agents/x.toml",
        TEAM + "[[team.members]]\n" + MEMBER.replace("plain", "web-search"),
        ["configs/agents/x.toml: team.members[0].type: unknown member type 'web-search'; did you mean 'web_search'?"],
    ),
    Case(
        "a_member_without_a_model",
        "configs/agents/x.toml",
        TEAM + '[[team.members]]\nname = "a"\ntype = "plain"\n',
        [
            'configs/agents/x.toml: team.members[0].model: is required: a model, as "provider:name" (Model that works, as provider:name)'
        ],
    ),
    Case(
        "a_model_without_a_provider",
        "configs/agents/x.toml",
        TEAM + '[team.leader]\nmodel = "gpt-5"\n',
        [
            'configs/agents/x.toml: team.leader.model: \'gpt-5\' does not name a model: write "provider:name", as in "openai:gpt-5-mini"'
        ],
    ),
    Case(
        "a_temperature_above_two",
        "configs/agents/x.toml",
        TEAM + "[team.leader]\ntemperature = 2.1\n",
        ["configs/agents/x.toml: team.leader.temperature: 2.1 is not allowed: must be a number from 0 to 2"],
    ),
    Case(
        "a_temperature_that_is_no_number",
        "configs/agents/x.toml",
        TEAM + "[team.leader]\ntemperature = nan\n",
        ["configs/agents/x.toml: team.leader.temperature: nan is not allowed: must be a number from 0 to 2"],
    ),
    Case(
        "a_key_of_a_provider",
        "configs/agents/x.toml",
        TEAM + '[team.leader]\napi_key = "sk-abcdefghijklmnop"\n',
        [
            "configs/agents/x.toml: team.leader.api_key: API keys and passwords never stand in a file: use the environment"
        ],
    ),
    Case(
        "stop_sequences_as_text",
        "configs/agents/x.toml",
        TEAM + '[team.leader]\nstop_sequences = "END"\n',
        [
            "configs/agents/x.toml: team.leader.stop_sequences: 'END' is not allowed: must be a list, each text, as in [\"END\"]"
        ],
    ),
    Case(
        "a_leader_with_a_slip",
        "configs/agents/x.toml",
        TEAM + "[team.leader]\ntemprature = 1\ntop_p = 1.5\nmax_tokens = 0\n",
        [
            "configs/agents/x.toml: team.leader.max_tokens: 0 is not allowed: must be a whole number from 1 up",
            "configs/agents/x.toml: team.leader.top_p: 1.5 is not allowed: must be a number from 0 to 1",
            'configs/agents/x.toml: team.leader.temprature: unknown key; did you mean "temperature"?',
        ],
    ),
    Case(
        "a_member_file_that_is_missing",
        "configs/agents/x.toml",
        TEAM + '[[team.members]]\nconfig = "configs/agents/gone.toml"\n',
        [
            "configs/agents/x.toml: team.members[0].config: file 'configs/agents/gone.toml' does not exist: paths start at the workspace"
        ],
    ),
    Case(
        "a_key_beside_a_member_file",
        "configs/agents/x.toml",
        TEAM + '[[team.members]]\nconfig = "configs/agents/member.toml"\nmodel = "ollama:b"\n',
        ["configs/agents/x.toml: team.members[0].model: may not stand beside config: move it into the member file"],
    ),
    Case(
        "a_member_file_that_is_a_number",
        "configs/agents/x.toml",
        TEAM + "[[team.members]]\nconfig = 3\n",
        ["configs/agents/x.toml: team.members[0].config: 3 is not allowed: must be the path of a member file"],
    ),
    Case(
        "a_member_whose_type_is_a_list",
        "configs/agents/x.toml",
        TEAM + '[[team.members]]\nname = "m"\ntype = ["plain"]\nmodel = "ollama:b"\n',
        ["configs/agents/x.toml: team.members[0].type: ['plain'] is not allowed: must be text"],
    ),
    Case(
        "a_default_model_that_is_a_number",
        "configs/evaluator.toml",
        "default_model = 5\n",
        ['configs/evaluator.toml: default_model: 5 is not allowed: must be a model, as "provider:name"'],
    ),
    Case(
        "a_fallback_without_a_provider",
        "configs/agents/x.toml",
        TEAM + '[team.leader]\nfallback_models = ["openai:gpt-5", "gpt"]\n',
        [
            'configs/agents/x.toml: team.leader.fallback_models[1]: \'gpt\' does not name a model: write "provider:name", as in "openai:gpt-5-mini"'
        ],
    ),
    Case(
        "teams_as_a_text",
        "configs/orchestrator.toml",
        '[orchestrator]\nteams = "configs/agents/x.toml"\n',
        [
            "configs/orchestrator.toml: orchestrator.teams: 'configs/agents/x.toml' is not allowed: "
            'must be a list, each a table, as in [{config = "configs/agents/x.toml"}]'
        ],
    ),
    Case(
        "members_as_a_table",
        "configs/agents/x.toml",
        TEAM + '[team.members]\nname = "a"\n',
        ["configs/agents/x.toml: team.members: {name = 'a'} is not allowed: must be a list, each a table"],
    ),
    Case(
        "a_custom_member_without_a_class",
        "configs/agents/m.toml",
        AGENT.replace("plain", "custom"),
        [
            'configs/agents/m.toml: agent.plugin: is required for type "custom": write {agent_module or path, agent_class}'
        ],
    ),
    Case(
        "a_plugin_file_that_is_missing",
        "configs/agents/m.toml",
        AGENT.replace("plain", "custom") + 'plugin = {path = "agents/gone.py", agent_class = "X"}\n',
        [
            "configs/agents/m.toml: agent.plugin.path: file 'agents/gone.py' does not exist: paths start at the workspace"
        ],
    ),
    Case(
        "a_plugin_without_a_place",
        "configs/agents/m.toml",
        AGENT.replace("plain", "custom") + 'plugin = {agent_class = "X"}\n',
        [
            'configs/agents/m.toml: agent.plugin: says neither "agent_module" nor "path": name the module or the file of the class'
        ],
    ),
    Case(
        "a_plugin_module_that_is_missing",
        "configs/agents/m.toml",
        AGENT.replace("plain", "custom") + 'plugin = {agent_module = "no_such_module_here", agent_class = "X"}\n',
        [
            "configs/agents/m.toml: agent.plugin: module 'no_such_module_here' cannot be imported: ModuleNotFoundError: No module named 'no_such_module_here'"
        ],
    ),
    Case(
        "a_plugin_that_raises",
        "configs/agents/m.toml",
        AGENT.replace("plain", "custom") + 'plugin = {path = "plugins/raises.py", agent_class = "X"}\n',
        [
            "configs/agents/m.toml: agent.plugin: '{workspace}/plugins/raises.py' cannot be imported: RuntimeError: no luck"
        ],
    ),
    Case(
        "a_plugin_that_steers_the_terminal",
        "configs/agents/m.toml",
        AGENT.replace("plain", "custom") + 'plugin = {path = "plugins/steers.py", agent_class = "X"}\n',
        [
            "configs/agents/m.toml: agent.plugin: '{workspace}/plugins/steers.py' cannot be imported: RuntimeError: \\x1b[2J\\nforged: line"
        ],
    ),
    Case(
        "a_plugin_that_exits",
        "configs/agents/m.toml",
        AGENT.replace("plain", "custom") + 'plugin = {path = "plugins/exits.py", agent_class = "X"}\n',
        ["configs/agents/m.toml: agent.plugin: 'plugins/exits.py' ends the program while it is loaded"],
    ),
    Case(
        "a_plugin_of_another_class",
        "configs/agents/m.toml",
        AGENT.replace("plain", "custom") + 'plugin = {path = "plugins/other.py", agent_class = "Other"}\n',
        [
            "configs/agents/m.toml: agent.plugin: class 'Other' in '{workspace}/plugins/other.py' must be a subclass of BaseMemberAgent"
        ],
    ),
    Case(
        "a_plugin_without_the_class",
        "configs/agents/m.toml",
        AGENT.replace("plain", "custom") + 'plugin = {path = "plugins/other.py", agent_class = "Missing"}\n',
        ["configs/agents/m.toml: agent.plugin: '{workspace}/plugins/other.py' has no class 'Missing'"],
    ),
    Case(
        "too_many_search_results",
        "configs/agents/m.toml",
        AGENT + "[agent.tool_settings.web_search]\nmax_results = 51\ntimeut = 3\n",
        [
            "configs/agents/m.toml: agent.tool_settings.web_search.max_results: 51 is not allowed: must be a whole number from 1 to 50",
            'configs/agents/m.toml: agent.tool_settings.web_search.timeut: unknown key; did you mean "timeout"?',
        ],
    ),
    Case(
        "search_results_under_metadata",
        "configs/agents/m.toml",
        AGENT + "[agent.metadata.tool_settings.web_search]\nmax_results = 0\n",
        [
            "configs/agents/m.toml: agent.metadata.tool_settings.web_search.max_results: 0 is not allowed: must be a whole number from 1 to 50"
        ],
    ),
    Case(
        "a_tool_setting_that_is_no_table",
        "configs/agents/m.toml",
        AGENT + "[agent.tool_settings]\nmine = 3\n",
        ["configs/agents/m.toml: agent.tool_settings.mine: 3 is not allowed: must be a table"],
    ),
    Case(
        "an_unknown_backend",
        "configs/agents/m.toml",
        AGENT + '[agent.tool_settings.code_execution]\nbackend = "docker"\n',
        [
            'configs/agents/m.toml: agent.tool_settings.code_execution.backend: \'docker\' is not allowed: must be "auto" or "provider" or "monty" or "bubblewrap"'
        ],
    ),
    Case(
        "a_server_without_an_address",
        "configs/agents/m.toml",
        AGENT + '[agent.mcp_servers.x]\nargs = ["-v"]\n',
        ['configs/agents/m.toml: agent.mcp_servers.x: needs either "command" or "url"'],
    ),
    Case(
        "keys_of_servers_in_a_file",
        "configs/agents/m.toml",
        AGENT
        + '[agent.mcp_servers.x]\ncommand = "sh"\nargs = ["--token", "hunter2-hunter2"]\n'
        + 'env = {API_KEY = "hunter2-hunter2", MAX_TOKEN = "12345678", LANG = "C", AUTH = "none"}\n'
        + '[agent.mcp_servers.y]\nurl = "https://host/mcp?api_key=hunter2-hunter2"\n'
        + 'headers = {Authorization = "Bearer hunter2-hunter2", X-Token = "${X_TOKEN}"}\n',
        [
            f"configs/agents/m.toml: agent.mcp_servers.{key}: "
            'keys do not belong in a file: write "${NAME}" and set the variable NAME'
            for key in ("x.args[1]", "x.env.API_KEY", "y.headers.Authorization", "y.url")
        ],
    ),
    Case(
        "a_function_without_a_module",
        "configs/agents/m.toml",
        AGENT + 'functions = ["search"]\n',
        ["configs/agents/m.toml: agent.functions[0]: 'search' does not name a function: write \"module:function\""],
    ),
    Case(
        "both_spellings_of_a_name",
        "configs/agents/m.toml",
        AGENT + 'agent_name = "b"\n',
        ['configs/agents/m.toml: agent: says the same as "name": keep one of them'],
    ),
    Case(
        "an_instruction_of_another_shape",
        "configs/agents/m.toml",
        AGENT + '[agent.system_instruction]\ntxt = "x"\n',
        ["configs/agents/m.toml: agent.system_instruction: {txt = 'x'} is not allowed: must be text"],
    ),
    Case(
        "hosts_and_addresses_of_the_web_in_other_forms",
        "configs/agents/m.toml",
        AGENT
        + '[agent.tool_settings.web_fetch]\nallowed_domains = ["https://a.b/"]\nallowed_private_hosts = ["a:b"]\n'
        + '[agent.tool_settings.web_search]\nbackend = "provider"\nendpoint = "http://s.example"\n',
        [
            'configs/agents/m.toml: agent.tool_settings.web_search.endpoint: is not asked with backend = "provider": keep one of them',
            "configs/agents/m.toml: agent.tool_settings.web_fetch.allowed_domains[0]: 'https://a.b/' is no domain: write it as in \"example.com\", without scheme, port and path",
            'configs/agents/m.toml: agent.tool_settings.web_fetch.allowed_private_hosts[0]: \'a:b\' is no host: write "host" or "host:port"',
        ],
    ),
    Case(
        "allowed_and_blocked_domains",
        "configs/agents/m.toml",
        AGENT + '[agent.tool_settings.web_fetch]\nallowed_domains = ["a.b"]\nblocked_domains = ["c.d"]\n',
        [
            'configs/agents/m.toml: agent.tool_settings.web_fetch: has both "allowed_domains" and "blocked_domains": keep one of them'
        ],
    ),
    Case(
        "weights_that_do_not_sum_to_one",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "Coverage"\nweight = 0.5\n[[metrics]]\nname = "Relevance"\nweight = 0.4\n',
        ["configs/evaluator.toml: metrics: the weights sum to 0.9, but must sum to 1 (within 0.001)"],
    ),
    Case(
        "one_weight_of_two",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "Coverage"\nweight = 1.0\n[[metrics]]\nname = "Relevance"\n',
        ["configs/evaluator.toml: metrics: 1 of 2 metrics have a weight: give all of them one, or none"],
    ),
    Case(
        "an_unknown_metric",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "Relevanc"\n',
        [
            "configs/evaluator.toml: metrics[0].name: unknown metric 'Relevanc'; did you mean 'Relevance'? (or give it a \"system_instruction\")"
        ],
    ),
    Case(
        "an_unknown_metric_type",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "Mine"\ntype = "Brevity"\nsystem_instruction = "x"\n',
        [
            f"configs/evaluator.toml: metrics[0].type: unknown metric 'Brevity'; known are {', '.join(sorted(BUILT_IN_METRICS))}"
        ],
    ),
    Case(
        "a_plain_metric_without_instruction",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "Tone"\ntype = "LLMPlain"\n',
        [
            "configs/evaluator.toml: metrics[0].system_instruction: is required for LLMPlain: say what the judge has to look for"
        ],
    ),
    Case(
        "two_metrics_of_one_name",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "Coverage"\n[[metrics]]\nname = "Coverage"\n',
        ["configs/evaluator.toml: metrics: metric name 'Coverage' is used 2 times: give each its own"],
    ),
    Case(
        "no_metrics_at_all",
        "configs/evaluator.toml",
        "metrics = []\n",
        ["configs/evaluator.toml: metrics: is empty: at least one is needed"],
    ),
    Case(
        "a_custom_metric_that_is_missing",
        "configs/evaluator.toml",
        '[custom_metrics]\nBrevity = {path = "metrics/gone.py", class = "Brevity"}\n',
        [
            "configs/evaluator.toml: custom_metrics.Brevity.path: file 'metrics/gone.py' does not exist: paths start at the workspace"
        ],
    ),
    Case(
        "a_custom_metric_without_a_class",
        "configs/evaluator.toml",
        '[custom_metrics]\nBrevity = {path = "plugins/other.py"}\n',
        [
            "configs/evaluator.toml: custom_metrics.Brevity.class: is required: text (Class in it, a subclass of BaseMetric)"
        ],
    ),
    Case(
        "a_custom_metric_in_two_places",
        "configs/evaluator.toml",
        '[custom_metrics]\nBrevity = {path = "plugins/other.py", module = "m", class = "Other"}\n',
        [
            'configs/evaluator.toml: custom_metrics.Brevity: needs either "module" or "path"',
            "configs/evaluator.toml: custom_metrics.Brevity: class 'Other' in '{workspace}/plugins/other.py' must be a subclass of BaseMetric",
        ],
    ),
    Case(
        "a_weight_above_one",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "Coverage"\nweight = 1.5\n',
        [
            "configs/evaluator.toml: metrics[0].weight: 1.5 is not allowed: must be a number from 0 to 1",
        ],
    ),
    Case(
        "an_evaluator_table",
        "configs/evaluator.toml",
        '[evaluator]\ndefault_model = "openai:gpt-5"\n',
        [
            "configs/evaluator.toml: evaluator: unknown key: the settings of this kind of file stand at the top level, without a table"
        ],
    ),
    Case(
        "llm_default_with_a_slip",
        "configs/evaluator.toml",
        '[llm_default]\nmodle = "openai:gpt-5"\n',
        ['configs/evaluator.toml: llm_default.modle: unknown key; did you mean "model"?'],
    ),
    Case(
        "a_judge_without_a_provider",
        "configs/judgment.toml",
        'model = "None"\n',
        [
            'configs/judgment.toml: model: \'None\' does not name a model: write "provider:name", as in "openai:gpt-5-mini"'
        ],
    ),
    Case(
        "a_target_above_a_hundred",
        "configs/judgment.toml",
        "target_score = 101\n",
        ["configs/judgment.toml: target_score: 101 is not allowed: must be a number from 0 to 100"],
    ),
    Case(
        "a_gain_without_rounds",
        "configs/judgment.toml",
        "plateau_min_gain = 1.0\n",
        ["configs/judgment.toml: plateau_min_gain: has no meaning without plateau_rounds: set both"],
    ),
    Case(
        "a_final_round_as_text",
        "configs/judgment.toml",
        'judge_on_final_round = "yes"\n',
        ["configs/judgment.toml: judge_on_final_round: 'yes' is not allowed: must be true or false"],
    ),
    Case(
        "an_infinite_timeout",
        "configs/judgment.toml",
        "timeout_seconds = inf\n",
        ["configs/judgment.toml: timeout_seconds: inf is not allowed: must be a whole number from 1 up"],
    ),
    Case(
        "a_template_that_is_missing",
        "configs/prompt_builder.toml",
        '[prompt_builder]\nteam_user_prompt = "x"\n',
        [
            "configs/prompt_builder.toml: prompt_builder.evaluator_user_prompt: is required: a template",
            "configs/prompt_builder.toml: prompt_builder.judgment_user_prompt: is required: a template",
        ],
    ),
    Case(
        "an_empty_template",
        "configs/prompt_builder.toml",
        PROMPTS.replace("{{ submission }}", " "),
        ["configs/prompt_builder.toml: prompt_builder.evaluator_user_prompt: evaluator_user_prompt cannot be empty"],
    ),
    Case(
        "a_template_with_a_syntax_error",
        "configs/prompt_builder.toml",
        PROMPTS.replace("{{ user_prompt }}", "{% if %}"),
        [
            "configs/prompt_builder.toml: prompt_builder.team_user_prompt: Jinja2 template syntax error at line 1: Expected an expression, got 'end of statement block'"
        ],
    ),
    Case(
        "a_template_with_an_unknown_variable",
        "configs/prompt_builder.toml",
        PROMPTS.replace("{{ user_prompt }}", "{{ user_promt }}"),
        [
            "configs/prompt_builder.toml: prompt_builder.team_user_prompt: line 1 of the template: Jinja2 template error: 'user_promt' is undefined; did you mean 'user_prompt'?"
        ],
    ),
    Case(
        "a_template_that_walks_attributes",
        "configs/prompt_builder.toml",
        PROMPTS.replace("{{ user_prompt }}", "{{ ''.__class__ }}"),
        [
            "configs/prompt_builder.toml: prompt_builder.team_user_prompt: line 1 of the template: Jinja2 template error: access to attribute '__class__' is unsafe"
        ],
    ),
    Case(
        "a_template_that_is_a_number",
        "configs/prompt_builder.toml",
        PROMPTS.replace('"{{ user_prompt }}"', "3"),
        ["configs/prompt_builder.toml: prompt_builder.team_user_prompt: 3 is not allowed: must be text"],
    ),
    Case(
        "a_round_prompt_with_a_slip",
        "configs/prompt_builder.toml",
        PROMPTS + "[prompt_builder.round_prompt]\nmax_submission_history_item = 3\nestimated_prompt_tokens = 0\n",
        [
            "configs/prompt_builder.toml: prompt_builder.round_prompt.estimated_prompt_tokens: 0 is not allowed: must be a whole number from 1 to 10000000",
            'configs/prompt_builder.toml: prompt_builder.round_prompt.max_submission_history_item: unknown key; did you mean "max_submission_history_items"?',
        ],
    ),
    Case(
        "a_provider_without_an_address",
        "configs/providers.toml",
        '[providers.mine]\napi = "chat"\n',
        ["configs/providers.toml: providers.mine.base_url: is required: a web address (Address of the server)"],
    ),
    Case(
        "a_provider_of_another_protocol",
        "configs/providers.toml",
        '[providers.mine]\nbase_url = "http://x"\napi = "grpc"\n',
        ['configs/providers.toml: providers.mine.api: \'grpc\' is not allowed: must be "chat" or "responses"'],
    ),
    Case(
        "a_provider_with_its_key",
        "configs/providers.toml",
        '[providers.mine]\nbase_url = "http://x"\napi_key = "sk-abcdefghijklmnop"\n',
        [
            'configs/providers.toml: providers.mine.api_key: API keys and passwords never stand in a file: name the variable that holds it as "api_key_env"'
        ],
    ),
    Case(
        "a_key_in_place_of_its_variable",
        "configs/providers.toml",
        '[providers.mine]\nbase_url = "http://x"\napi_key_env = "sk-abcdefghijklmnop"\n',
        [
            "configs/providers.toml: providers.mine.api_key_env: give the name of the environment variable that holds the key, never the key itself"
        ],
    ),
    Case(
        "a_password_in_an_address",
        "configs/providers.toml",
        '[providers.mine]\nbase_url = "http://me:secret@x/v1"\n',
        [
            "configs/providers.toml: providers.mine.base_url: keys and passwords do not belong in a file: take them out of the address"
        ],
    ),
    Case(
        "an_address_without_a_protocol",
        "configs/providers.toml",
        '[providers.mine]\nbase_url = "localhost:8000"\n',
        [
            'configs/providers.toml: providers.mine.base_url: \'localhost:8000\' is not a web address: it starts with "http://" or "https://"'
        ],
    ),
    Case(
        "a_server_with_a_query_in_its_address",
        "configs/providers.toml",
        '[providers.mine]\nbase_url = "http://x/v1?version=2"\n',
        [
            "configs/providers.toml: providers.mine.base_url: cannot have a query or a fragment: paths of calls are added to its end"
        ],
    ),
    Case(
        "a_provider_name_with_a_colon",
        "configs/providers.toml",
        '[providers."a:b"]\nbase_url = "http://x"\n',
        [
            'configs/providers.toml: providers."a:b": cannot be a model prefix: letters, digits, _, . and -, a letter first'
        ],
    ),
    Case(
        "steering_codes_in_a_key",
        "configs/judgment.toml",
        '"\\u001b[31mred\\n" = 1\nmodel = "\\u001b]0;x\\u0007"\n',
        [
            'configs/judgment.toml: model: \'\\x1b]0;x\\x07\' does not name a model: write "provider:name", as in "openai:gpt-5-mini"',
            'configs/judgment.toml: "\\u001b[31mred\\n": unknown key; known are judge_on_final_round, max_retries, max_tokens, model, plateau_min_gain, plateau_rounds, seed, stop_sequences, system_instruction, target_score, temperature, timeout_seconds, top_p',
        ],
    ),
    Case(
        "a_text_is_not_closed_at_the_end",
        "configs/judgment.toml",
        'model = """none\n',
        ["configs/judgment.toml: not valid TOML: at the end: a text is not closed: the quote at its end is missing"],
    ),
    Case(
        "a_single_quote_is_not_closed",
        "configs/judgment.toml",
        "model = 'none\n",
        ["configs/judgment.toml: not valid TOML: at the end: a text is not closed: the quote at its end is missing"],
    ),
    Case(
        "a_key_that_is_also_a_table",
        "configs/evaluator.toml",
        "llm_default = 1\n[llm_default]\nseed = 1\n",
        ["configs/evaluator.toml: not valid TOML: line 2: llm_default is set a second time: keep one of the two"],
    ),
    Case(
        "rounds_as_a_truth_and_least_rounds",
        "configs/orchestrator.toml",
        "[orchestrator]\nmax_rounds = true\nmin_rounds = 3\n" + ONE_TEAM,
        [
            "configs/orchestrator.toml: orchestrator.max_rounds: true is not allowed: must be a whole number from 1 to 10"
        ],
    ),
    Case(
        "a_weight_below_zero",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "Coverage"\nweight = -0.5\n[[metrics]]\nname = "Relevance"\nweight = 1.0\n',
        ["configs/evaluator.toml: metrics[0].weight: -0.5 is not allowed: must be a number from 0 to 1"],
    ),
    Case(
        "an_evaluator_file_as_a_team",
        "configs/orchestrator.toml",
        '[[orchestrator.teams]]\nconfig = "configs/scores.toml"\n',
        [
            "configs/orchestrator.toml: orchestrator.teams[0].config: configs/scores.toml is an evaluator file, but a team file is wanted here"
        ],
    ),
    Case(
        "a_team_file_as_an_evaluator",
        "configs/orchestrator.toml",
        '[orchestrator]\nevaluator_config = "configs/agents/team.toml"\njudgment_config = "configs/scores.toml"\n'
        + ONE_TEAM,
        [
            "configs/orchestrator.toml: orchestrator.evaluator_config: configs/agents/team.toml is a team file, but an evaluator file is wanted here",
            "configs/orchestrator.toml: orchestrator.judgment_config: configs/scores.toml is an evaluator file, but a judgment file is wanted here",
        ],
    ),
    Case(
        "a_judgment_file_with_one_key_of_an_evaluator",
        "configs/orchestrator.toml",
        '[orchestrator]\njudgment_config = "configs/mixed.toml"\n' + ONE_TEAM,
        [
            "configs/mixed.toml: default_model: unknown key; known are judge_on_final_round, max_retries, max_tokens, model, plateau_min_gain, plateau_rounds, seed, stop_sequences, system_instruction, target_score, temperature, timeout_seconds, top_p"
        ],
    ),
    Case(
        "a_team_file_as_a_member",
        "configs/agents/x.toml",
        TEAM + '[[team.members]]\nconfig = "configs/agents/team.toml"\n',
        [
            "configs/agents/x.toml: team.members[0].config: configs/agents/team.toml is a team file, but a member file is wanted here"
        ],
    ),
    Case(
        "a_team_file_that_is_no_toml",
        "configs/orchestrator.toml",
        '[[orchestrator.teams]]\nconfig = "plugins/other.py"\n',
        [
            "plugins/other.py: not valid TOML: line 1, column 7: expected '=' after a key in a key/value pair (named in configs/orchestrator.toml: orchestrator.teams[0].config)"
        ],
    ),
    Case(
        "a_member_of_an_abstract_class",
        "configs/agents/m.toml",
        AGENT.replace("plain", "custom") + 'plugin = {path = "plugins/members.py", agent_class = "Abstract"}\n',
        [
            "configs/agents/m.toml: agent.plugin: class 'Abstract' in '{workspace}/plugins/members.py' can never run: it has no method 'execute'"
        ],
    ),
    Case(
        "a_member_that_is_not_awaited",
        "configs/agents/m.toml",
        AGENT.replace("plain", "custom") + 'plugin = {path = "plugins/members.py", agent_class = "Blocking"}\n',
        [
            "configs/agents/m.toml: agent.plugin: class 'Blocking' in '{workspace}/plugins/members.py' can never run: write \"async def execute\", it is awaited"
        ],
    ),
    Case(
        "a_member_that_takes_no_settings",
        "configs/agents/m.toml",
        AGENT.replace("plain", "custom") + 'plugin = {path = "plugins/members.py", agent_class = "Alone"}\n',
        [
            "configs/agents/m.toml: agent.plugin: class 'Alone' has to take its settings as its one argument: too many positional arguments"
        ],
    ),
    Case(
        "a_metric_of_an_abstract_class",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "M"\n[custom_metrics]\nM = {path = "plugins/metrics.py", class = "Abstract"}\n',
        [
            "configs/evaluator.toml: custom_metrics.M: class 'Abstract' in '{workspace}/plugins/metrics.py' can never run: it has no method 'evaluate'"
        ],
    ),
    Case(
        "a_metric_that_is_not_awaited",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "M"\n[custom_metrics]\nM = {path = "plugins/metrics.py", class = "Blocking"}\n',
        [
            "configs/evaluator.toml: custom_metrics.M: class 'Blocking' in '{workspace}/plugins/metrics.py' can never run: write \"async def evaluate\", it is awaited"
        ],
    ),
    Case(
        "a_metric_that_takes_other_arguments",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "M"\n[custom_metrics]\nM = {path = "plugins/metrics.py", class = "Renaming"}\n',
        [
            "configs/evaluator.toml: custom_metrics.M: class 'Renaming' in '{workspace}/plugins/metrics.py' can never run: evaluate is given user_query, submission, execution_id, team_id, round_number, reference by name; missing a required argument: 'question'"
        ],
    ),
    Case(
        "options_a_metric_does_not_take",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "M"\noptions = {limit = 3, colour = "red"}\n[custom_metrics]\nM = {path = "plugins/metrics.py", class = "Limited"}\n',
        [
            "configs/evaluator.toml: metrics[0].options: class 'Limited' cannot be made with these: got an unexpected keyword argument 'colour'"
        ],
    ),
    Case(
        "an_option_a_metric_needs",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "Short"\ntype = "M"\n[custom_metrics]\nM = {path = "plugins/metrics.py", class = "Limited"}\n',
        [
            "configs/evaluator.toml: metrics[0].options: class 'Limited' cannot be made with these: missing a required argument: 'limit'"
        ],
    ),
    Case(
        "options_of_a_built_in_metric",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "Coverage"\noptions = {limit = 3}\n[[metrics]]\nname = "Tone"\nsystem_instruction = "x"\noptions = {limit = 3}\n',
        [
            "configs/evaluator.toml: metrics[0].options: Coverage takes none: take them out",
            "configs/evaluator.toml: metrics[1].options: Tone takes none: take them out",
        ],
    ),
    Case(
        "options_of_a_metric_in_code",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "Length"\noptions = {maximun = 3, minimum = "4"}\n'
        '[[metrics]]\nname = "How long"\ntype = "Length"\noptions = {minimum = 5, maximum = 4}\n'
        '[[metrics]]\nname = "Terms"\noptions = {required = "one"}\n',
        [
            "configs/evaluator.toml: metrics[0].options.minimum: '4' is not allowed: must be a whole number from 1 up",
            'configs/evaluator.toml: metrics[0].options.maximun: unknown key; did you mean "maximum"?',
            "configs/evaluator.toml: metrics[1].options.minimum: minimum (5) must be <= maximum (4)",
            "configs/evaluator.toml: metrics[2].options.required: 'one' is not allowed: must be a list, each text, as in [\"one\"]",
        ],
    ),
    Case(
        "options_a_metric_in_code_needs",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "Length"\n',
        ["configs/evaluator.toml: metrics[0].options: say how long it should be: minimum, maximum or both"],
    ),
    Case(
        "options_that_a_metric_of_ones_own_offers_a_model_of",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "M"\noptions = {most = 0, mosst = 1}\n[custom_metrics]\nM = {path = "plugins/metrics.py", class = "Modelled"}\n',
        [
            "configs/evaluator.toml: metrics[0].options.most: 0 is not allowed: must be a whole number from 1 up",
            'configs/evaluator.toml: metrics[0].options.mosst: unknown key; did you mean "most"?',
        ],
    ),
    Case(
        "a_reference_that_holds_nothing",
        "configs/orchestrator.toml",
        '[orchestrator]\nreference = "answers/empty.md"\n' + ONE_TEAM,
        [
            "configs/orchestrator.toml: orchestrator.reference: file 'answers/empty.md' is empty: it has to hold the reference answer"
        ],
    ),
    Case(
        "a_reference_that_is_no_text",
        "configs/orchestrator.toml",
        '[orchestrator]\nreference = "answers/binary.md"\n' + ONE_TEAM,
        [
            "configs/orchestrator.toml: orchestrator.reference: file answers/binary.md: not UTF-8 text (line 1); save the file as UTF-8"
        ],
    ),
    Case(
        "a_reference_for_what_is_no_judge",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "M"\nuse_reference = true\n[[metrics]]\nname = "Length"\nuse_reference = true\noptions = {maximum = 9}\n[custom_metrics]\nM = {path = "plugins/metrics.py", class = "Modelled"}\n',
        [
            "configs/evaluator.toml: metrics[0].use_reference: M is no judge: it is given the reference if its evaluate takes one",
            "configs/evaluator.toml: metrics[1].use_reference: Length is computed in code and asks no model: take it out",
        ],
    ),
    Case(
        "a_model_for_a_metric_that_asks_none",
        "configs/evaluator.toml",
        '[[metrics]]\nname = "Short"\ntype = "Length"\nmodel = "openai:gpt-5"\nsystem_instruction = "x"\noptions = {maximum = 9}\n',
        [
            "configs/evaluator.toml: metrics[0].model: Length is computed in code and asks no model: take it out",
            "configs/evaluator.toml: metrics[0].system_instruction: Length is computed in code and asks no model: take it out",
        ],
    ),
]


@pytest.fixture
def workspace(workspace: Path) -> Path:
    files = {
        "configs/agents/team.toml": TEAM,
        "configs/agents/member.toml": AGENT,
        "plugins/raises.py": 'raise RuntimeError("no luck")\n',
        "plugins/exits.py": "raise SystemExit(0)\n",
        "plugins/steers.py": 'raise RuntimeError("\\x1b[2J\\nforged: line")\n',
        "plugins/other.py": "class Other:\n    pass\n",
        "plugins/members.py": MEMBERS,
        "plugins/metrics.py": METRICS,
        "answers/empty.md": "\n",
        "answers/binary.md": "",
        "configs/scores.toml": 'default_model = "ollama:b"\nmax_retries = 1\n',
        "configs/mixed.toml": 'default_model = "ollama:b"\ntarget_score = 90\n',
    }
    for name, text in files.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text)
    (workspace / "answers/binary.md").write_bytes(b"\xff\xfe")
    return workspace


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    assert len(CASES) >= 100
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_broken_file_is_told_in_full(case: Case, workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = case.text if isinstance(case.text, bytes) else case.text.encode()
    (workspace / case.file).write_bytes(content)

    started = time.process_time()
    with pytest.raises(SystemExit) as ended:
        main(["config", "validate", case.file, "--workspace", str(workspace)])
    seconds = time.process_time() - started

    printed = capsys.readouterr()
    told = [line.replace("{workspace}", str(workspace)) for line in case.told]
    assert printed.err.splitlines() == [f"mixseek: {line}" for line in told]
    assert printed.out == ""
    assert ended.value.code == 2
    assert seconds < 1
