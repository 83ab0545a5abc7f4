import dataclasses
import json

import pytest

from lab.cli.faults import describe
from lab.cli.main import main
from lab.faults.catalogue import FAULTS
from lab.faults.examine import Outcome, Report


def test_the_list_names_every_fault_with_its_rule(capsys):
    assert main(["faults", "list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in FAULTS)
    assert "    Capture records and computes nothing" in text


def test_the_list_as_json_has_the_sentences(capsys):
    assert main(["faults", "list", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in entries] == list(FAULTS)
    assert all(set(entry) == {"name", "explanation", "rule", "source"} for entry in entries)


def test_one_fault_as_json_is_a_list_with_one_entry(capsys):
    assert main(["faults", "run", "broadcast-positions", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["name"], entry["backend"]) == ("broadcast-positions", "tape (simulated)")
    assert (entry["detected"], entry["raised"]) == (True, "ReplayRefusedError")
    assert (entry["first_step"], entry["first_row"]) == (1, 1)


def test_one_fault_in_words_shows_both_runs_and_why(capsys):
    assert main(["faults", "run", "forgotten-replay", "--guards", "off"]) == 0
    text = capsys.readouterr().out
    assert "forgotten-replay on tape (simulated)" in text
    assert "healthy run\n  request 0: " in text
    assert "broken run, guards off: wrong(0)" in text
    assert "rule: Capture records and computes nothing" in text
    assert "modelled on: kekzl/imp PR 1417: " in text
    assert text.endswith("\n\nharm seen with no guard running\n")


def test_an_unknown_fault_is_one_line_and_status_2(capsys):
    assert main(["faults", "run", "forgoten-replay"]) == 2
    assert "did you mean 'forgotten-replay'" in capsys.readouterr().err


def test_a_device_that_is_not_there_is_one_line_and_status_2(capsys):
    assert main(["faults", "run", "forgotten-replay", "--device", "cuda:99"]) == 2
    assert "device 'cuda:99'" in capsys.readouterr().err


def test_the_help_says_what_guards_are_and_what_the_report_means(capsys):
    with pytest.raises(SystemExit):
        main(["faults", "run", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "guards are the engine's own checks and the lab's audit" in text
    assert 'raised_by tells who stopped a run: "engine" (its own check, or it failed) or "audit" (the lab\'s)' in text
    assert "-1 is warm-up, before step 0" in text
    assert "with the guards off by its harm alone" in text


def test_a_name_or_all_must_be_given():
    with pytest.raises(SystemExit):
        main(["faults", "run"])


def test_what_was_not_detected_is_said_loudly():
    fault = FAULTS["forgotten-replay"]
    outcomes = (Outcome("on"), Outcome("off", error="no answer within 180 s"))
    lines = "\n".join(describe(Report(fault, "cuda", outcomes)))
    assert "broken run, guards on: ok" in lines
    assert "broken run, guards off: unknown\n  no answer within 180 s" in lines
    assert lines.endswith("NOT DETECTED")


ON = Outcome("on", raised="AuditError", message="row 1 must be 2", raised_step=3)
ENGINE = Outcome("on", raised="ReplayRefusedError", message="another object", raised_step=3)
HARM = {guards: Outcome(guards, wrong_step=3, wrong_row=1) for guards in ("on", "off")}
FAILED = Outcome("off", raised="KeyError", message="0", raised_step=3)


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ((ON,), "detected: stopped by the audit"),
        ((ENGINE, HARM["off"]), "detected: stopped by the engine; harm seen with no guard running"),
        ((ON, FAILED), "detected: stopped by the audit; it failed with no guard running"),
        ((HARM["on"],), "detected: harm seen, which no guard stopped"),
        ((HARM["off"],), "harm seen with no guard running"),
        ((FAILED,), "it failed with no guard running"),
        ((Outcome("on"),), "NOT DETECTED"),
        ((Outcome("off"),), "NO HARM SEEN"),
    ],
)
def test_harm_that_is_seen_is_not_called_detected_where_no_guard_ran(outcomes, words):
    *_, last = describe(Report(FAULTS["forgotten-replay"], "cuda", outcomes))
    assert last == f"\n{words}"


def test_the_words_of_every_kind_of_outcome():
    fault = FAULTS["forgotten-replay"]
    outcomes = (
        Outcome("on", raised="AuditError", message="row 1 must be 2", raised_step=-1),
        Outcome("off", wrong_step=3, wrong_row=1, num_wrong=5, wrong_text="samples 4, the healthy run 6", lost_step=2),
    )
    lines = "\n".join(describe(Report(fault, "cuda", outcomes)))
    assert "AuditError during warm-up, by the audit: row 1 must be 2" in lines
    assert "first wrong: step 3, row 1 samples 4, the healthy run 6; 5 wrong rows in all" in lines
    one = Report(fault, "cuda", (dataclasses.replace(outcomes[1], num_wrong=1),))
    assert "; 1 wrong row in all" in "\n".join(describe(one))
    assert "step 2 runs eagerly, where the healthy run replays a graph" in lines
