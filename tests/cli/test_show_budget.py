"""What people see of a run that its budget ended, and of one that they plan."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mixseek.amounts import usd
from mixseek.cli import main
from mixseek.testing import ModelServerProcess, write_workspace

PRICE = "input_usd_per_million = 1\noutput_usd_per_million = 2\n"


@pytest.fixture
def server() -> Iterator[ModelServerProcess]:
    with ModelServerProcess() as running:
        yield running


def _workspace(root: Path, server: ModelServerProcess, budget: str, prices: str = "") -> Path:
    write_workspace(root, teams=1, members=0, max_rounds=3, base_url=server.base_url)
    file = root / "configs" / "orchestrator.toml"
    file.write_text(f"{file.read_text()}\n[budget]\n{budget}\n{prices}")
    return root


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main([*arguments])
    printed = capsys.readouterr()
    code = left.value.code
    return (code if isinstance(code, int) else 0), printed.out, printed.err


def test_a_run_that_its_budget_ended_prints_its_bill_by_team_round_and_role(
    tmp_path: Path, server: ModelServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    # A leader and three judges in a round.
    place = str(_workspace(tmp_path, server, "max_requests = 9"))
    code, out, err = _run(capsys, "exec", "Name a tree.", "-w", place)
    assert code == 0
    assert ", budget_exhausted" in out
    assert "Bill by team, round and role\n  Team A (a), round 1, leader: 1 call, " in out
    assert "  Team A (a), round 2, evaluator: 3 calls, " in out
    assert "89 % of the run's budget is used: 8 of 9 calls" in err
    hint, command = err.splitlines()[-2:]
    assert hint == "mixseek: with a larger limit, teams that ended at their budget go on with this:"
    assert command.startswith("  mixseek resume ")

    code, shown, _ = _run(capsys, "show", "-w", place)
    assert code == 0
    bill = shown.partition("\nBill\n")[2].splitlines()
    assert ["Team", "A", "1", "evaluator", "3"] in [line.split()[:5] for line in bill]
    _, _, refused = _run(capsys, *command.split()[1:])
    assert refused.endswith("raise the limit that it met, then resume it with --accept-changes\n")
    file = tmp_path / "configs" / "orchestrator.toml"
    file.write_text(file.read_text().replace("max_requests = 9", "max_requests = 90"))
    assert _run(capsys, *command.split()[1:])[0] == 0
    log = tmp_path / "logs" / "mixseek.log"
    assert "WARNING" in next(line for line in log.read_text().splitlines() if "8 of 9 calls" in line)


def test_a_run_whose_budget_paid_for_no_round_tells_where_it_went(
    tmp_path: Path, server: ModelServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(_workspace(tmp_path, server, "max_requests = 2"))
    code, out, _ = _run(capsys, "exec", "Name a tree.", "-w", place)
    assert (code, "no team has a result" in out) == (2, True)
    assert "Bill by team, round and role\n  Team A (a), round 1, leader: 1 call, " in out
    _, shown, _ = _run(capsys, "show", "-w", place)
    bill = shown.partition("\nBill\n")[2].splitlines()
    assert ["Team", "A", "1", "leader", "1"] in [line.split()[:5] for line in bill]


@pytest.mark.parametrize(
    ("budget", "shorter"),
    [("max_requests = 2", ""), ("max_tokens = 8900", "max_output_tokens (or max_tokens of an agent that has it)")],
)
def test_an_execution_that_failed_at_its_budget_is_shown_with_what_lets_it_go_on(
    tmp_path: Path, server: ModelServerProcess, capsys: pytest.CaptureFixture[str], budget: str, shorter: str
) -> None:
    place = str(_workspace(tmp_path, server, budget))
    _, _, err = _run(capsys, "exec", "Name a tree.", "-w", place)
    resume = err.splitlines()[-1].strip()
    assert resume.endswith(" --accept-changes")
    _, shown, _ = _run(capsys, "show", "-w", place)
    [hint] = [line for line in shown.splitlines() if "mixseek resume" in line]
    changed = f"with a larger limit, or a smaller {shorter}" if shorter else "with a larger limit"
    assert hint == f"{changed}, {resume} lets the teams go on that failed"
    _, _, refused = _run(capsys, "resume", "-w", place)
    assert f" failed, {changed}, {resume} lets them go on" in refused
    file = tmp_path / "configs" / "orchestrator.toml"
    file.write_text(file.read_text().replace(budget, f"{budget}00"))
    assert _run(capsys, *resume.split()[1:])[0] == 0


@pytest.mark.parametrize(
    ("budget", "used", "shorter"),
    [
        ("max_requests = 2", "2 of 2 calls are used, and up to 1 would be needed", ""),
        ("max_tokens = 9000", "0 of 9,000 tokens are used, ", ", or a smaller max_output_tokens"),
    ],
)
def test_an_evaluation_that_its_budget_ended_names_the_limit_what_is_used_and_what_to_raise(
    tmp_path: Path, server: ModelServerProcess, capsys: pytest.CaptureFixture[str], budget: str, used: str, shorter: str
) -> None:
    place = str(_workspace(tmp_path, server, budget))
    code, _, err = _run(capsys, "evaluate", "Name a tree.", "Oak.", "-w", place, "-c", "configs/orchestrator.toml")
    limit = budget.split()[0]
    assert code == 2
    assert err.startswith(f"mixseek: configs/orchestrator.toml: budget.{limit}: the run's budget cannot pay for the ")
    assert f": {used}" in err
    assert f"({limit} of [budget]); with a larger limit{shorter}" in err
    assert err.endswith(", this submission can be scored\n")


def test_a_dry_run_estimates_and_says_how_that_stands_to_the_budget(
    tmp_path: Path, server: ModelServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    models = ("leader-a", "judge", "judgment")
    prices = "".join(f'[prices."loopback:{model}"]\n{PRICE}' for model in models)
    place = str(_workspace(tmp_path, server, "max_cost_usd = 0.03\nmax_requests = 100", prices))
    code, out, _ = _run(capsys, "exec", "Name a tree.", "-w", place, "--dry-run")
    assert code == 0
    assert "  low: every team stops as soon as it may, no member is asked, answers have 10 tokens, " in out
    assert "  budget of 0.03 USD: enough for the low estimate, not for the high one" in out
    assert "  budget of 100 calls: enough for the high estimate" in out
    _, told, _ = _run(capsys, "exec", "Name a tree.", "-w", place, "--dry-run", "-f", "json")
    estimate = json.loads(told)["estimate"]
    # Two rounds of a leader and three judges and a judgment; three rounds and a judgment after the last.
    assert (estimate["low"]["calls"], estimate["high"]["calls"]) == (9, 14)
    assert 0 < estimate["low"]["cost_usd"] < 0.03 < estimate["high"]["cost_usd"]
    assert len(estimate["against_budget"]) == 2
    assert server.bill.total.requests == 0


@pytest.mark.parametrize(
    ("longest", "told"),
    [
        ("", "cannot pay for one round: at least 10,"),
        ("max_output_tokens = 200\n", "enough for the low estimate, not for the high one"),
    ],
)
def test_a_dry_run_reckons_with_what_calls_set_aside_and_with_the_budgets_of_teams(
    tmp_path: Path, server: ModelServerProcess, capsys: pytest.CaptureFixture[str], longest: str, told: str
) -> None:
    place = _workspace(tmp_path, server, f"max_tokens = 9000\n{longest}")
    with (place / "configs/agents/team-a.toml").open("a") as file:
        file.write("\n[team.budget]\nmax_requests = 5\n")
    code, out, _ = _run(capsys, "exec", "Name a tree.", "-w", str(place), "--dry-run")
    assert code == 0
    assert f"  budget of 9,000 tokens: {told}" in out
    assert "  budget of 5 calls of Team A: less than the low estimate: teams will stop early" in out


@pytest.mark.parametrize(
    ("budget", "told", "rounds"),
    [
        ("max_requests = 3", "cannot pay for one round: at least 4 would be needed; there is a result only with a", 0),
        ("max_requests = 4", "less than the low estimate: teams will stop early after 1 of 3 rounds\n", 1),
        ("max_requests = 7", "less than the low estimate: teams will stop early after 1 of 3 rounds\n", 1),
        ("max_requests = 8", "less than the low estimate: teams will stop early after 2 of 3 rounds\n", 2),
        ("max_requests = 14", "enough for the high estimate, and for 3 rounds of every team in the worst case\n", 3),
        ("max_tokens = 10000", "cannot pay for one round: at least 10,", 0),
        ("max_tokens = 60000\nmax_output_tokens = 300", "enough for 3 rounds of every team in the worst case\n", 3),
    ],
)
def test_a_dry_run_tells_how_many_rounds_the_run_then_has(
    tmp_path: Path, server: ModelServerProcess, capsys: pytest.CaptureFixture[str], budget: str, told: str, rounds: int
) -> None:
    place = str(_workspace(tmp_path, server, budget))
    code, out, _ = _run(capsys, "exec", "Name a tree.", "-w", place, "--dry-run")
    assert code == 0
    [line] = [line for line in out.splitlines(keepends=True) if line.startswith("  budget of ")]
    assert line.partition(": ")[2].startswith(told)
    code, _, err = _run(capsys, "exec", "Name a tree.", "-w", place)
    assert code == (0 if rounds else 2)
    assert err.count(" finished, score ") - err.count("a: finished, ") == rounds


def test_a_dry_run_says_what_a_run_that_has_no_result_says_and_offers_the_same_remedy(
    tmp_path: Path, server: ModelServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(_workspace(tmp_path, server, "max_tokens = 9000"))
    _, out, _ = _run(capsys, "exec", "Name a tree.", "-w", place, "--dry-run")
    _, _, err = _run(capsys, "exec", "Name a tree.", "-w", place)
    for words in (
        " would be needed, with 8,192 tokens for an answer of loopback:judge",
        "with a larger limit, or a smaller max_output_tokens (or max_tokens of an agent that has it)",
    ):
        assert (words in out, words in err) == (True, True)


@pytest.mark.parametrize("of_a_team", [False, True])
def test_a_budget_that_is_refused_is_told_so_in_the_plan_and_is_enough_for_nothing(
    tmp_path: Path, server: ModelServerProcess, capsys: pytest.CaptureFixture[str], of_a_team: bool
) -> None:
    place = _workspace(tmp_path, server, "max_seconds = 60" if of_a_team else "max_tokens = 1000")
    if of_a_team:
        with (place / "configs/agents/team-a.toml").open("a") as file:
            file.write("\n[team.budget]\nmax_tokens = 1000\n")
    code, out, planned = _run(capsys, "exec", "Name a tree.", "-w", str(place), "--dry-run")
    refusal = planned.partition(".max_tokens: 1,000 tokens ")[2]
    assert refusal.startswith("cannot pay for one answer of 'loopback:judge', which judges: with 8,192 tokens it may ")
    assert f"  budget of 1,000 tokens{' of Team A' * of_a_team}: refused: it {refusal}" in out
    assert "enough" not in out
    assert (code, planned) == _run(capsys, "exec", "Name a tree.", "-w", str(place))[::2]


def test_a_dry_run_tells_where_not_every_team_can_have_a_round(
    tmp_path: Path, server: ModelServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_workspace(tmp_path, teams=2, max_rounds=3, base_url=server.base_url)
    file.write_text(f"{file.read_text()}\n[budget]\nmax_requests = 7\n")
    _, out, _ = _run(capsys, "exec", "Name a tree.", "-w", str(tmp_path), "--dry-run")
    told = (
        "cannot pay for a first round of every team: at least 8 would be needed; all have a result only with a larger"
    )
    assert f"  budget of 7 calls: {told} limit\n" in out
    code, _, err = _run(capsys, "exec", "Name a tree.", "-w", str(tmp_path))
    assert (code, err.count(": round 1 finished, ")) == (1, 1)
    file.write_text(file.read_text().replace("= 7", "= 12"))
    _, out, _ = _run(capsys, "exec", "Name a tree.", "-w", str(tmp_path), "--dry-run")
    assert "teams will stop early, in the worst case after 1 of 3 rounds, else after 2\n" in out
    _, _, err = _run(capsys, "exec", "Name a tree.", "-w", str(tmp_path))
    assert (err.count(": round 1 finished, "), err.count(": round 2 finished, ")) == (2, 1)


@pytest.mark.parametrize(
    ("calls", "told", "all_played"),
    [
        # Two rounds of a leader and three judges for either team; judgments after the last are only for the record.
        (15, "less than the low estimate: teams will stop early, in the worst case after 1 of 2 rounds\n", False),
        (16, "less than the low estimate: teams may stop early, in the worst case after 1 of 2 rounds\n", True),
    ],
)
def test_a_dry_run_tells_that_teams_will_stop_early_where_even_short_rounds_of_all_are_too_many(
    tmp_path: Path,
    server: ModelServerProcess,
    capsys: pytest.CaptureFixture[str],
    calls: int,
    told: str,
    all_played: bool,
) -> None:
    file = write_workspace(tmp_path, teams=2, max_rounds=2, base_url=server.base_url, orchestrator="min_rounds = 2")
    file.write_text(f"{file.read_text()}\n[budget]\nmax_requests = {calls}\n")
    _, out, _ = _run(capsys, "exec", "Name a tree.", "-w", str(tmp_path), "--dry-run")
    assert f"  budget of {calls} calls: {told}" in out
    code, out, _ = _run(capsys, "exec", "Name a tree.", "-w", str(tmp_path))
    assert (code, "budget_exhausted" in out) == (0, not all_played)


def test_a_dry_run_counts_a_token_for_each_byte_that_a_call_may_read(
    tmp_path: Path, server: ModelServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(_workspace(tmp_path, server, "max_tokens = 60000\nmax_output_tokens = 200"))
    task = "word " * 8000
    code, out, _ = _run(capsys, "exec", task, "-w", place, "--dry-run")
    assert (code, "budget of 60,000 tokens: cannot pay for one round: at least 6" in out) == (0, True)
    larger = str(_workspace(tmp_path / "larger", server, "max_tokens = 100000\nmax_output_tokens = 200"))
    _, out, _ = _run(capsys, "exec", task, "-w", larger, "--dry-run")
    assert "budget of 100,000 tokens: enough for the low estimate, but not beside the 4" in out


@pytest.mark.parametrize(
    ("api", "backend", "asks"), [("responses", "auto", 2), ("responses", "local", 0), ("chat", "auto", 0)]
)
def test_a_dry_run_reckons_with_what_the_providers_own_search_may_read(
    tmp_path: Path, server: ModelServerProcess, capsys: pytest.CaptureFixture[str], api: str, backend: str, asks: int
) -> None:
    place = _workspace(tmp_path, server, "max_tokens = 150000\nmax_output_tokens = 200")
    with (place / "configs/providers.toml").open("a") as file:
        file.write(f'[providers.wide]\nbase_url = "{server.base_url}"\napi = "{api}"\n')
    with (place / "configs/agents/team-a.toml").open("a") as file:
        file.write('\n[[team.members]]\nname = "searcher"\ntype = "web_search"\nmodel = "wide:gpt-5"\n')
        file.write(f'description = "searches"\ntool_settings.web_search.backend = "{backend}"\n')
    code, out, _ = _run(capsys, "exec", "Name a tree.", "-w", str(place), "--dry-run")
    assert code == 0
    assumed = "  high: the provider's own tools read 200,000 tokens for each answer of searcher\n"
    assert (assumed in out) == (asks > 0)
    assert ("not beside the 20" in out) == (asks > 0)
    _, told, _ = _run(capsys, "exec", "Name a tree.", "-w", str(place), "--dry-run", "-f", "json")
    estimate = json.loads(told)["estimate"]
    assert estimate["high"]["input_tokens"] // 200_000 == 3 * asks
    assert estimate["low"]["input_tokens"] < 200_000


def test_a_dry_run_names_models_without_a_price_and_prices_without_a_model(
    tmp_path: Path, server: ModelServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("leader-a", "judge", "judgement")
    prices = "".join(f'[prices."loopback:{name}"]\n{PRICE}' for name in names)
    place = str(_workspace(tmp_path, server, "max_requests = 100", prices))
    code, out, _ = _run(capsys, "exec", "Name a tree.", "-w", place, "--dry-run")
    assert code == 0
    assert "  no price is known for loopback:judgment: give it one in [prices]\n" in out
    unused = "  [prices] has a price for loopback:judgement, a model that nobody here names; "
    assert f"{unused}did you mean loopback:judgment?\n" in out
    assert "has a price for loopback:judge," not in out
    _, told, _ = _run(capsys, "exec", "Name a tree.", "-w", place, "--dry-run", "-f", "json")
    assert json.loads(told)["estimate"]["unused_prices"] == ["loopback:judgement"]


def test_the_low_estimate_is_not_above_what_short_answers_can_take(
    tmp_path: Path, server: ModelServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    models = ("leader-a", "judge", "judgment")
    free = "".join(
        f'[prices."loopback:{model}"]\ninput_usd_per_million = 0\noutput_usd_per_million = 0\n' for model in models
    )
    place = _workspace(tmp_path, server, "max_requests = 100", free)
    for name in ("agents/team-a", "evaluator", "judgment"):
        with (place / "configs" / f"{name}.toml").open("a") as file:
            file.write("\n[llm_default]\nmax_tokens = 7\n" if name == "evaluator" else "\nmax_tokens = 7\n")
    _, told, _ = _run(capsys, "exec", "Name a tree.", "-w", str(place), "--dry-run", "-f", "json")
    estimate = json.loads(told)["estimate"]
    assert [estimate[course]["output_tokens"] for course in ("low", "high")] == [9 * 7, 14 * 7]
    _, out, _ = _run(capsys, "exec", "Name a tree.", "-w", str(place), "--dry-run")
    assert " tokens, no cost\n" in out


def test_a_model_without_a_price_is_one_line_with_file_key_and_remedy(
    tmp_path: Path, server: ModelServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(_workspace(tmp_path, server, "max_cost_usd = 1"))
    code, _, err = _run(capsys, "exec", "Name a tree.", "-w", place, "--dry-run")
    assert code == 2
    assert (
        "configs/agents/team-a.toml: team.leader.model: model 'loopback:leader-a' has no known price, and the budget "
        'counts money: give it one in the orchestrator file, [prices."loopback:leader-a"]'
    ) in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        ("[budget]\nmax_cost_usd = 1\n", "model 'loopback:leader-a' has no known price"),
        ("[budget]\nmax_tokens = 1000\n", "budget.max_tokens: 1,000 tokens cannot pay for one answer"),
        ("[team.budget]\nmax_cost_usd = 1\n", "model 'loopback:judge' has no known price"),
        ("[team.budget]\nmax_tokens = 1000\n", "team.budget.max_tokens: 1,000 tokens cannot pay for one answer"),
    ],
)
@pytest.mark.parametrize("named", [("-c", "configs/orchestrator.toml"), ()])
def test_validate_tells_of_a_budget_what_a_run_says_that_refuses_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], budget: str, told: str, named: tuple[str, ...]
) -> None:
    _refused_workspace(tmp_path, budget)
    place = ("-w", str(tmp_path))
    code, out, err = _run(capsys, "config", "validate", *named, *place)
    assert (code, out, told in err) == (2, "", True)
    assert (code, err) == _run(capsys, "exec", "Name a tree.", *place)[::2]
    assert _run(capsys, "config", "validate", "configs/agents/team-a.toml", *place)[0] == 0


def _refused_workspace(root: Path, budget: str) -> None:
    """A budget that stands in the file of the run or, by its name, of the team; nobody is there to be asked."""
    file = write_workspace(root, teams=1, members=0, base_url="http://127.0.0.1:9/v1")
    file = root / "configs/agents/team-a.toml" if budget.startswith("[team") else file
    file.write_text(f"{file.read_text()}\n{budget}")


def test_validate_needs_no_key_to_tell_that_a_model_has_no_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    _refused_workspace(tmp_path, "[budget]\nmax_cost_usd = 1\n")
    texts = {file: file.read_text() for file in (tmp_path / "configs").rglob("*.toml")}
    for model, is_told in (("gpt-5-mini", False), ("no-such-model", True)):
        for file, text in texts.items():
            file.write_text(re.sub(r"loopback:[\w-]+", f"openai:{model}", text))
        code, out, err = _run(capsys, "config", "validate", "-w", str(tmp_path))
        assert (code, f"model 'openai:{model}' has no known price" in err) == (2 * is_told, is_told)
        assert is_told or "note: configs/agents/team-a.toml: team.leader.model: " in out


def test_validate_without_plugins_tells_no_prices_since_providers_may_be_theirs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _refused_workspace(tmp_path, "[budget]\nmax_cost_usd = 1\n")
    assert _run(capsys, "config", "validate", "--no-plugins", "-w", str(tmp_path))[0] == 0


def test_what_is_known_of_a_cost_is_told_although_a_price_is_missing(
    tmp_path: Path, server: ModelServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(_workspace(tmp_path, server, "max_requests = 90", f'[prices."loopback:leader-a"]\n{PRICE}'))
    code, out, _ = _run(capsys, "exec", "Name a tree.", "-w", place)
    assert code == 0
    _, told, _ = _run(capsys, "exec", "Name a tree.", "-w", place, "-f", "json")
    bill = json.loads(told)["bill"]
    known = sum(line["cost_usd"] or 0 for line in bill)
    assert known > 0
    assert None in [line["cost_usd"] for line in bill]
    words = f"cost not known, but {usd(known)} USD at least"
    assert f" out, {words}, " in out
    assert f" out, {words}\n" in _run(capsys, "show", "-w", place)[1]
    assert _run(capsys, "journal", "calls", "-w", place)[1].splitlines()[-1].endswith(f" tokens, {words}")
    assert f", {words}" in _run(capsys, "export", "last", "-w", place, "-f", "markdown")[1]
