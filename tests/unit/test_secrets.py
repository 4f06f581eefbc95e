"""Text that looks like a secret is masked, and text that only resembles one is not."""

from __future__ import annotations

import pytest

from rankscope.records.secrets import MASK, mask_arguments, mask_config, mask_text

V = "v-a-l-u-e"


@pytest.mark.parametrize(
    "words",
    [
        ["--api-key", V], ["--api_key", V], ["--apikey", V], ["--hfToken", V], ["--token", V], ["-token", V],
        ["--db-password", V], ["--secret", V], ["--aws.secret_access_key", V], ["--credentials", V], ["--auth", V],
        ["--bearer", V], ["--cookie", V], ["--key", V], ["--passphrase", V], ["--wandb-key", V], ["--pwd", V],
        [f"--token={V}"], [f"--WANDB_API_KEY={V}"], [f"WANDB_API_KEY={V}"], [f"db.password={V}"], [f"+db.password={V}"],
        [f"++a.b.token={V}"], [f"a@db.password={V}"], [f"model.hub.auth_token={V}"], [f"Authorization:{V}"],
        ["--db", f"postgres://me:{V}@host/base"], [f"db=postgres://me:{V}@host/base"], [f"--proxy=http://u:{V}@h:80"],
        ["--url", f"https://h/p?x=1&token={V}&y=2"], [f"{{'token': '{V}'}}"], [f'--json={{"password": "{V}"}}'],
        ["--pw", V], [f"x={{password:{V},user:me}}"], [f"opts=token={V}"], [f"https://{V}@github.com/a/b.git"],
        [f"https://blob/x?sv=1&sig={V}&se=2"], ["--hook", f"https://hooks.slack.com/services/T0/B0/{V}"],
        ["--hook", f"https://discord.com/api/webhooks/12/{V}"],
        ["--env", f"A=1,SECRET={V}"], [f"--header=Authorization: Bearer {V}"], [f"bash -c 'train --token {V}'"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_secrets_of_a_command_line(words):
    kept = mask_arguments(["train.py", *words, "--lr", "1e-4"])
    assert len(kept) == len(words) + 3
    assert V not in " ".join(kept)
    assert MASK in " ".join(kept)
    assert (kept[0], kept[-2:]) == ("train.py", ["--lr", "1e-4"])
    assert words[0].partition("=")[0].partition(":")[0][:5] in kept[1]  # that it was given, and its name, stays


@pytest.mark.parametrize(
    "value",
    ["hf_" + "aB3" * 12, "ghp_" + "a1" * 18, "github_pat_" + "a1_" * 12, "glpat-" + "a1" * 10, "sk-" + "a1B2" * 10,
     "sk-proj-" + "a1B2" * 10, "xoxb-123456789012-abcdef", "AKIA" + "ABCD1234" * 2, "AIza" + "a" * 35,
     "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeKKF2QT4", "-----BEGIN RSA PRIVATE KEY-----\nMIIE"],
)  # fmt: skip
@pytest.mark.parametrize("around", ["{}", "x={}", "see {} there", '"{}"'])
def test_values_that_tell_by_themselves(value, around):
    text = around.format(value)
    assert value not in mask_text(text)
    assert value not in mask_arguments([text])[0]
    assert value not in mask_config({"plain": [text]})["plain"][0]


@pytest.mark.parametrize(
    "words",
    [
        ["--max-tokens", "100"], ["--max_token", "5"], ["--num-keys=3"], ["--image_key", "jpg"],
        ["--pad-token", "<pad>"],
        ["--tokenizer", "gpt2"], ["--author", "me"], ["--monkey", "x"], ["--password", "--lr", "1"], ["--keyboard=x"],
        ["schedule.active=3"], ["run.dir=/a/b"], ["--url", "https://host:8080/path?x=1"], ["--rdzv-id=job7"],
        ["--rdzv-endpoint", "host:29500"], ["--compass", "north"], ["--sort-key=time"], ["-S", "x=1"],
        ["s3://bucket/key"], ["git+ssh://git@host/x"],
        ["--config", "sk-learn"], ["--model", "hf_gpt2"], ["--num-attention-heads", "8"],
        ["--tokens-per-batch", "4096"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_only_sounds_like_a_secret_stays(words):
    assert mask_arguments(words) == words


def test_a_configuration_is_masked_at_any_depth():
    plain = {"wandb": {"api_key": V, "project": "p"}, "auth": {"user": V, "n": 3, "none": None},
             "list": [{"token": [V]}], "max_tokens": 5, "db": {"url": f"postgres://u:{V}@h/x"}}  # fmt: skip
    assert mask_config(plain) == {
        "wandb": {"api_key": MASK, "project": "p"}, "auth": {"user": MASK, "n": 3, "none": None},
        "list": [{"token": [MASK]}], "max_tokens": 5, "db": {"url": f"postgres://u:{MASK}@h/x"},
    }  # fmt: skip


def test_a_message_is_masked_and_can_still_be_read():
    said = f"401 for https://me:{V}@host/x: token={V} is not valid (step 12, key 'weight' of layer 3)"
    assert (
        mask_text(said)
        == f"401 for https://me:{MASK}@host/x: token={MASK} is not valid (step 12, key 'weight' of layer 3)"
    )


def test_masking_takes_no_longer_than_reading():
    long = "a" * 1_000_000 + "://" + "b" * 100_000
    assert mask_text(long) == long
    for part in ("a=", "a-", "a.b/", "://"):
        assert mask_text(part * 20_000) == part * 20_000
