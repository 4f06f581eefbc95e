"""An error of rankscope is kept for the report and is not raised."""

from __future__ import annotations

import functools

from rankscope.agent.process.guard import guarded, keep_message, kept_messages


def test_a_hook_that_fails_is_reported_once_and_called_no_more(capfd):
    calls = []

    def hook(value):
        calls.append(value)
        raise ValueError("planted, first")

    wrapped = guarded(hook)
    wrapped(1)
    wrapped(2)
    assert calls == [1]
    assert sum("planted, first" in sentence for sentence in kept_messages()) == 1
    assert capfd.readouterr() == ("", "")


def test_what_has_no_name_fails_as_quietly():
    def hook(_value):
        raise ValueError("planted, second")

    guarded(functools.partial(hook, 1))()
    assert any("planted, second" in sentence for sentence in kept_messages())


def test_a_sentence_is_kept_once():
    keep_message("the same sentence")
    keep_message("the same sentence")
    assert kept_messages().count("the same sentence") == 1
