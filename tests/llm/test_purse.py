"""Purses by themselves: what they give, whom they let wait, and what they keep for others."""

import asyncio

import pytest

from mixseek.config.schema import BudgetSettings
from mixseek.errors import BudgetExhaustedError
from mixseek.llm.purse import LowPurse, Purses, SetAsideError, Spend


def _purses(told: list[LowPurse] | None = None, **limits: float) -> Purses:
    return Purses(BudgetSettings(**limits), ([] if told is None else told).append)  # type: ignore[arg-type]


def _tokens(count: int) -> Spend:
    return Spend(tokens=count, requests=1)


def _expect(purses: Purses, team_id: str, guess: Spend) -> None:
    purses.guess(team_id, guess)
    purses.expect(team_id)


async def _play_round(purses: Purses, team_id: str, used: Spend) -> None:
    await purses.begin_round(team_id)
    (await purses.reserve(team_id, used)).settle(used)
    purses.round_finished(team_id)


async def test_what_is_reserved_is_not_there_for_others_until_it_is_settled() -> None:
    purses = _purses(max_tokens=100)
    first = await purses.reserve("a", _tokens(80))
    waiting = asyncio.create_task(purses.reserve("b", _tokens(60)))
    await asyncio.sleep(0)
    assert not waiting.done()
    first.settle(_tokens(30))
    (await waiting).release()


async def test_a_call_that_can_never_be_paid_is_refused_at_once() -> None:
    purses = _purses(max_tokens=100)
    first = await purses.reserve("a", _tokens(50))
    with pytest.raises(BudgetExhaustedError, match="0 of 100 tokens are used, and up to 101 would be needed"):
        await purses.reserve("b", _tokens(101))
    first.release()


async def test_large_amounts_are_told_in_full() -> None:
    purses = _purses(max_tokens=2_000_000)
    with pytest.raises(BudgetExhaustedError, match=r"0 of 2,000,000 tokens .* up to 2,345,678 would be needed"):
        await purses.reserve("a", _tokens(2_345_678))


async def test_why_a_call_needs_so_much_is_told_of_calls_and_rounds_but_not_where_calls_are_short() -> None:
    purses = _purses(max_tokens=300_000, max_requests=3)
    why = "200,000 tokens for an answer"
    await purses.begin_round("a")
    (await purses.reserve("a", _tokens(210_000), why)).settle(_tokens(60_000))
    (await purses.reserve("a", _tokens(1_000), "1,000 tokens for a verdict")).release()
    purses.round_finished("a")
    assert f"would be needed, with {why} (" in (purses.shortage("a") or "")
    with pytest.raises(BudgetExhaustedError, match=why):
        await purses.reserve("a", _tokens(250_000), why)
    with pytest.raises(BudgetExhaustedError) as refused:
        await purses.reserve("a", Spend(tokens=210_000, requests=3), why)
    assert why not in str(refused.value)


async def test_whose_call_needs_so_much_is_told_where_it_is_that_of_another_team() -> None:
    purses = _purses(max_tokens=2_000)
    for team_id, bound in (("small", 50), ("large", 1_700)):
        await purses.begin_round(team_id)
        (await purses.reserve(team_id, _tokens(bound), f"{bound} tokens for an answer")).settle(_tokens(100))
        purses.round_finished(team_id)
    assert "with 1700 tokens for an answer, which another team asks (" in (purses.shortage("small") or "")
    assert "with 1700 tokens for an answer (" in (purses.shortage("large") or "")


async def test_whoever_waits_is_refused_when_nothing_is_on_its_way_any_more() -> None:
    purses = _purses(max_tokens=100)
    first = await purses.reserve("a", _tokens(80))
    waiting = asyncio.create_task(purses.reserve("b", _tokens(60)))
    await asyncio.sleep(0)
    first.settle(_tokens(50))
    with pytest.raises(BudgetExhaustedError):
        await waiting


async def test_those_who_wait_come_in_their_order() -> None:
    purses = _purses(max_tokens=100)
    first = await purses.reserve("a", _tokens(100))
    large = asyncio.create_task(purses.reserve("b", _tokens(90)))
    await asyncio.sleep(0)
    small = asyncio.create_task(purses.reserve("c", _tokens(20)))
    await asyncio.sleep(0)
    first.release()
    taken = await large
    await asyncio.sleep(0)
    assert not small.done()
    taken.release()
    (await small).release()


async def test_one_who_is_cancelled_while_it_waits_lets_the_next_come() -> None:
    purses = _purses(max_tokens=100)
    first = await purses.reserve("a", _tokens(60))
    large = asyncio.create_task(purses.reserve("b", _tokens(90)))
    await asyncio.sleep(0)
    small = asyncio.create_task(purses.reserve("c", _tokens(20)))
    await asyncio.sleep(0)
    assert not small.done()
    large.cancel()
    async with asyncio.timeout(30):
        taken = await small
    [purse] = purses.of("c")
    assert purse.used == Spend()
    taken.release()
    first.release()


async def test_what_is_lost_stays_spent_at_its_bound_and_a_cost_above_it_is_counted_as_it_is() -> None:
    purses = _purses(max_tokens=100)
    [purse] = purses.of("a")
    (await purses.reserve("a", _tokens(40))).settle(Spend(), _tokens(40))
    (await purses.reserve("a", _tokens(10))).settle(_tokens(90))
    assert (purse.lost.tokens, purse.spent.tokens, purse.used.requests) == (40, 90, 2)
    with pytest.raises(BudgetExhaustedError):
        await purses.reserve("a", _tokens(1))


async def test_a_call_is_paid_from_the_purse_of_its_team_and_from_that_of_the_run() -> None:
    purses = _purses(max_tokens=100)
    purses.open("a", BudgetSettings(max_tokens=30))
    with pytest.raises(BudgetExhaustedError, match="the team's budget"):
        await purses.reserve("a", _tokens(31))
    (await purses.reserve("b", _tokens(90))).settle(_tokens(90))
    with pytest.raises(BudgetExhaustedError, match="the run's budget"):
        await purses.reserve("a", _tokens(20))
    # What was taken out of the first purse is back in it.
    assert purses.of("a")[0].used == Spend()
    (await purses.reserve("a", _tokens(10))).release()


async def test_calls_of_others_leave_what_a_round_has_earmarked() -> None:
    purses = _purses(max_tokens=100)
    for team in ("a", "b"):
        _expect(purses, team, _tokens(0))
    await purses.begin_round("a")
    (await purses.reserve("a", _tokens(20))).settle(_tokens(20))
    purses.round_finished("a")
    await purses.begin_round("a")  # half as much again as the round before: 30
    with pytest.raises(BudgetExhaustedError):
        await purses.reserve("b", _tokens(60))
    (await purses.reserve("b", _tokens(50))).settle(_tokens(50))
    (await purses.reserve("a", _tokens(30))).settle(_tokens(30))


async def _refused(purses: Purses, team_id: str, bound: Spend) -> SetAsideError:
    with pytest.raises(SetAsideError) as refused:
        await purses.reserve(team_id, bound)
    return refused.value


async def test_what_a_round_holds_for_its_calls_is_part_of_what_is_set_aside_for_it() -> None:
    purses = _purses(max_tokens=100)
    _expect(purses, "a", _tokens(60))
    await purses.begin_round("a")
    held = await purses.reserve("a", _tokens(40))
    async with asyncio.timeout(30):
        (await purses.reserve("b", _tokens(40))).release()
    held.settle(_tokens(10))

    with pytest.raises(SetAsideError):
        await purses.reserve("b", _tokens(45))


async def test_first_rounds_that_fit_beside_each_other_wait_for_no_team_that_is_yet_to_come() -> None:
    purses = _purses(max_tokens=100)
    for team_id in "abc":
        _expect(purses, team_id, _tokens(40))
    await purses.begin_round("a")

    async with asyncio.timeout(30):
        await purses.begin_round("b")

    third = asyncio.create_task(purses.begin_round("c"))
    await asyncio.sleep(0)
    assert not third.done()
    purses.leave("a")
    await third


async def test_a_call_that_fits_but_for_what_is_set_aside_for_others_waits_until_their_round_is_over() -> None:
    purses = _purses(max_tokens=100)
    await _play_round(purses, "a", _tokens(20))
    await purses.begin_round("a")  # half as much again as the round before: 30
    await purses.begin_round("b")
    waiting = asyncio.create_task((await _refused(purses, "b", _tokens(60))).wait())
    (await purses.reserve("a", _tokens(10))).settle(_tokens(10))
    await asyncio.sleep(0)
    assert not waiting.done(), "the rest of the round is still set aside"
    purses.leave("a")
    await waiting
    (await purses.reserve("b", _tokens(60))).release()


async def test_of_teams_that_wait_for_the_rounds_of_each_other_the_last_is_refused_and_lets_the_others_go_on() -> None:
    purses = _purses(max_tokens=130)
    for team in ("a", "b"):
        await _play_round(purses, team, _tokens(20))
    for team in ("a", "b"):
        await purses.begin_round(team)
    first = asyncio.create_task((await _refused(purses, "a", _tokens(65))).wait())
    await asyncio.sleep(0)
    with pytest.raises(BudgetExhaustedError, match="and up to 95 would be needed, 30 of that for other teams"):
        await (await _refused(purses, "b", _tokens(65))).wait()
    assert not first.done()
    purses.leave("b")
    await first
    (await purses.reserve("a", _tokens(65))).release()


async def test_another_round_leaves_a_first_one_for_every_team_that_has_not_begun() -> None:
    purses = _purses(max_requests=3)
    for team in ("a", "b", "c"):
        _expect(purses, team, Spend(requests=1))
    await purses.begin_round("a")
    (await purses.reserve("a", _tokens(1))).settle(_tokens(1))
    purses.round_finished("a")
    assert purses.shortage("a") is not None
    with pytest.raises(BudgetExhaustedError):
        await purses.begin_round("a")
    purses.leave("a")
    for team in ("b", "c"):
        await purses.begin_round(team)
        (await purses.reserve(team, _tokens(1))).settle(_tokens(1))


async def test_the_dust_of_sums_of_fractions_is_not_told_as_set_aside_for_other_teams() -> None:
    purses = _purses(max_cost_usd=1.0)
    for team in ("a", "b"):
        await _play_round(purses, team, Spend(0.2))
    await purses.begin_round("b")  # half as much again as the round before
    (await purses.reserve("b", Spend(0.3))).settle(Spend(0.3))
    [purse] = purses.of("a")
    purse.learn_bound("a", Spend(0.5))
    words = purses.shortage("a") or ""
    assert "would be needed" in words
    assert "for other teams" not in words


async def test_how_far_guesses_were_off_in_first_rounds_tells_what_those_of_other_teams_may_take() -> None:
    purses = _purses(max_tokens=1_000)
    for team, guess in (("small", 100), ("large", 2_000)):
        _expect(purses, team, _tokens(guess))
    await _play_round(purses, "small", _tokens(30))
    # 30 are used and 600 are left for the first round of the large team; another one needs 45, and room for a call.
    [purse] = purses.of("small")
    purse.learn_bound("small", _tokens(325))
    assert purses.shortage("small") is None
    purse.learn_bound("small", _tokens(326))
    assert "up to 971 would be needed, 600 of that for other teams" in (purses.shortage("small") or "")


async def test_a_guess_that_was_too_low_for_one_team_is_raised_for_another_in_the_middle_of_its_first_round() -> None:
    purses = _purses(max_tokens=4_000)
    for team, guess in (("small", 100), ("large", 1_000)):
        _expect(purses, team, _tokens(guess))
    await purses.begin_round("large")
    await _play_round(purses, "small", _tokens(300))
    # Three times what was guessed: up to 3,000 for the large one, beside 300 that are used, 450, and 300 for a call.
    another = asyncio.create_task(purses.begin_round("small"))
    await asyncio.sleep(0)
    assert not another.done()
    (await purses.reserve("large", _tokens(300))).settle(_tokens(300))
    purses.leave("large")
    await another


async def test_a_further_round_waits_for_first_ones_and_is_refused_when_these_leave_too_little() -> None:
    purses = _purses(max_requests=5)
    for team, guess in (("a", 2), ("b", 4)):
        _expect(purses, team, Spend(requests=guess))
    await purses.begin_round("a")
    first = asyncio.create_task(purses.begin_round("b"))
    await asyncio.sleep(0)
    for _ in range(2):
        (await purses.reserve("a", _tokens(1))).settle(_tokens(1))
    purses.round_finished("a")
    assert purses.shortage("a") is None, "there may be enough when the first round of the other is over"
    further = asyncio.create_task(purses.begin_round("a"))
    async with asyncio.timeout(30):
        await first
    for _ in range(2):
        (await purses.reserve("b", _tokens(1))).settle(_tokens(1))
    assert not further.done()
    purses.round_finished("b")
    with pytest.raises(BudgetExhaustedError, match="4 of 5 calls are used, and up to 2 would be needed"):
        await further


async def test_nobody_waits_for_a_team_that_has_not_come_to_its_first_round() -> None:
    purses = _purses(max_requests=5)
    for team, guess in (("a", 1), ("b", 4)):
        _expect(purses, team, Spend(requests=guess))
    await _play_round(purses, "a", _tokens(1))
    # The other may wait for the place that this one has.
    assert "up to 5 would be needed, 4 of that for other teams" in (purses.shortage("a") or "")
    with pytest.raises(BudgetExhaustedError):
        await purses.begin_round("a")


async def test_what_calls_of_a_team_may_cost_that_has_left_stands_in_nobodys_way() -> None:
    purses = _purses(max_cost_usd=1.0)
    for team in ("cheap", "dear"):
        _expect(purses, team, Spend(0.01, 100, 1))
    await _play_round(purses, "cheap", Spend(0.01, 100, 1))
    await purses.begin_round("dear")
    (await purses.reserve("dear", Spend(0.98, 100, 1))).settle(Spend(0.01, 100, 1))
    purses.round_finished("dear")
    assert purses.shortage("cheap") is not None, "its judgment may be as dear"
    purses.leave("dear")
    assert purses.shortage("cheap") is None


async def test_what_costs_nothing_says_nothing_of_what_others_cost() -> None:
    purses = _purses(max_cost_usd=1.0)
    for team, guess in (("free", 0.0), ("dear", 0.9)):
        _expect(purses, team, Spend(guess, 100, 1))
    await _play_round(purses, "free", _tokens(30))
    purses.learn_bound("free", Spend(0.2))
    assert purses.shortage("free") is not None


async def test_a_first_round_that_may_be_too_dear_waits_for_those_of_others_and_is_played_in_any_case() -> None:
    purses = _purses(max_requests=5)
    for team in ("a", "b"):
        _expect(purses, team, Spend(requests=4))
    await purses.begin_round("a")
    waiting = asyncio.create_task(purses.begin_round("b"))
    await asyncio.sleep(0)
    assert not waiting.done()
    for _ in range(3):
        (await purses.reserve("a", _tokens(1))).settle(_tokens(1))
    purses.round_finished("a")
    purses.leave("a")
    await waiting


async def test_a_low_purse_is_told_once_for_each_limit() -> None:
    told: list[LowPurse] = []
    purses = _purses(told, max_tokens=100, max_requests=100)
    for _ in range(3):
        (await purses.reserve("a", _tokens(30))).settle(_tokens(30))
    assert told == [LowPurse(None, "max_tokens", 90, 100)]


async def test_the_time_of_a_budget_counts_what_other_processes_played() -> None:
    now = [100.0]
    purses = Purses(BudgetSettings(max_seconds=60), lambda _: None, clock=lambda: now[0])
    purses.played[None] = 40.0
    purses.start()
    now[0] += 5
    purse = purses.soonest_end("a")
    assert purse is not None
    assert purse.seconds_left() == 15
    await purses.begin_round("a")
    now[0] += 10
    purses.round_finished("a")
    assert "5.0 seconds are left, and a round took 10.0" in (purses.shortage("a") or "")
    purses.stop()


@pytest.mark.parametrize("is_over", [False, True])
async def test_nobody_is_told_of_the_time_of_a_run_that_is_over(*, is_over: bool) -> None:
    told: list[LowPurse] = []
    purses = _purses(told, max_seconds=100)
    purses.played[None] = 79.99
    purses.start()
    if is_over:
        purses.stop()

    await asyncio.sleep(0.1)

    assert [low.limit for low in told] == ([] if is_over else ["max_seconds"])


async def test_rounds_of_another_process_teach_what_rounds_of_this_one_would() -> None:
    now = [0.0]
    played, resumed = (
        Purses(BudgetSettings(max_tokens=8_000, max_seconds=100), lambda _: None, clock=lambda: now[0])
        for _ in range(2)
    )
    for purses in (played, resumed):
        for team in ("a", "b", "c", "d"):
            _expect(purses, team, _tokens(100))
    played.start()
    for used in (100, 1_500):
        await played.begin_round("a")
        (await played.reserve("a", _tokens(used))).settle(_tokens(used))
        now[0] += 30
        played.round_finished("a")
        resumed.count("a", _tokens(used), Spend())
        resumed.learn("a", _tokens(used), 30)
    resumed.played[None] = 60
    resumed.start()
    assert (played.shortage("a"), resumed.shortage("a")) == (None, None)
    now[0] += 15
    assert played.shortage("a") == resumed.shortage("a")
    assert "25.0 seconds are left, and a round took 30.0" in (resumed.shortage("a") or "")
    for purses in (played, resumed):
        purses.stop()


async def test_a_round_that_is_begun_again_has_used_what_it_used_before() -> None:
    purses = _purses(max_requests=7)
    for calls in (3, 1):
        await purses.begin_round("a")
        for _ in range(calls):
            (await purses.reserve("a", _tokens(10))).settle(_tokens(10))
    purses.round_finished("a")
    # Four of seven are used, and a round takes four.
    assert purses.shortage("a") is not None
