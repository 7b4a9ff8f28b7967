"""Options to a plan: each field can be asked for, defaults are the plan's own, and bad values are refused in words."""

import msgspec
import pytest

from kernelmark.bench.cli.run import run, verify
from kernelmark.bench.plan.case import Budget, Plan
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.options import MAX_TIME_S, OPTIONS, REL_CI

BY_NAME = {option.name: option for option in OPTIONS}
#: What follows from the machine that the command runs on.
RESOLVED = {"devices", "threads", "isas"}


def test_every_field_of_a_plan_can_be_asked_for() -> None:
    others = {"suites", "tuned", "tiles", "tunes", "shard", "executor", "gpus"}
    fields = {field.name for field in msgspec.structs.fields(Plan)} - others
    assert {option.field for option in OPTIONS} == fields


def test_an_option_that_is_left_out_leaves_the_plans_default() -> None:
    plan = Plan(devices=("cpu",))
    asked = {option.field: () if option.many else option.default for option in OPTIONS if option.field not in RESOLVED}
    assert {name: getattr(plan, name) for name in asked} == asked
    assert Budget() == Budget(MAX_TIME_S, REL_CI)


def test_the_command_takes_every_option_and_verify_those_that_concern_no_time() -> None:
    names = {param.name for param in run.params}
    assert names >= {option.field for option in OPTIONS}
    of_run = {"csv_path", "resume", "report_to", "fail_noisy", "tuned", "shard", "only_list", "dry_run"}
    of_run |= {"executor", "start_timeout_s", "gpus", "select", "noisy_again"}
    missing = names - {param.name for param in verify.params} - of_run
    assert missing == {"mode", "max_time_s", "rel_ci", "ceilings", "processes", "spread_s"}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("threads", "4, 1,4", (4, 1)),
        ("seed", "0", 0),
        ("timeout", "0.5", 0.5),
        ("rel-ci", "0", 0.0),
        ("processes", "5", 5),
    ],
)
def test_a_text_becomes_the_value_of_the_field(name: str, text: str, value: object) -> None:
    assert BY_NAME[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("threads", "0", "integers above 0, separated by commas"),
        ("threads", "1,", "integers above 0, separated by commas"),
        ("threads", "", "integers above 0, separated by commas"),
        ("seed", "-1", "an integer from 0 to 9223372036854775807"),
        ("seed", str(2**63), "an integer from 0 to 9223372036854775807"),
        ("processes", "1" + "0" * 20, "an integer from 1 to 1000"),
        ("timeout", "0", "a number above 0"),
        ("max-time", "inf", "a number above 0"),
        ("max-time", "soon", "a number above 0"),
        ("rel-ci", "nan", "a number, 0 or more"),
        ("spread", "-1", "a number, 0 or more"),
        ("spread", "inf", "a number, 0 or more"),
        ("processes", "1.5", "an integer from 1 to 1000"),
    ],
)
def test_what_an_option_cannot_take_is_refused_with_what_it_can(name: str, text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=f"^is {text!r}, expected {expected}$"):
        BY_NAME[name].parse(text)


def test_the_help_names_every_mode_that_can_be_chosen_and_the_default() -> None:
    text = BY_NAME["mode"].text
    assert [mode for mode in Mode if f"{mode} " not in text] == [Mode.VERIFY]
    assert text.endswith("[default: cold]")
