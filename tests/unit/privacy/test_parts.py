"""Names, tokens, policies and records of a copy, separately."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from rankscope.config import ToolConfig
from rankscope.errors import ConfigError
from rankscope.privacy.files.paths import clean_path
from rankscope.privacy.files.records import RULES, config_of
from rankscope.privacy.naming.meaning import meaning
from rankscope.privacy.naming.names import Names
from rankscope.privacy.naming.policy import LEVELS, load_policy
from rankscope.privacy.naming.tokens import Tokens, load_key, reveal, save_key
from rankscope.trace.files.naming import parse_name, rank_of_name
from rankscope.trace.kineto.events import category_code
from rankscope.trace.libraries import OURS

KEY = bytes(range(32))
EVERYBODYS = (
    ("cpu_op", "aten::_foreach_addcmul_"),
    ("cpu_op", "AddmmBackward0"),
    ("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0"),
    ("cpu_op", "entire_frame_compile (dynamo_timed)"),
    ("user_annotation", "ProfilerStep#17"),
    ("user_annotation", "rankscope.step#17"),
    ("user_annotation", "Optimizer.step#AdamW.step"),
    ("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"),
    ("user_annotation", "nccl:send 1->0"),
    ("cuda_runtime", "cudaLaunchKernelExC"),
    ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)"),
    ("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    ("kernel", "nvjet_tst_128x256_64x4_2x1_v_bz_coopB_NNT"),
    ("kernel", "triton_poi_fused_gelu_gelu_backward_view_4"),
    (
        "kernel",
        "void at::native::unrolled_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >()",
    ),
)


@pytest.mark.parametrize(("category", "name"), EVERYBODYS)
def test_names_of_pytorch_and_of_libraries_stay(category: str, name: str) -> None:
    assert Names(Tokens(KEY)).judged(category, name) == name


@pytest.mark.parametrize("name", [name for row in OURS for name, _ in row.samples])
def test_a_kernel_of_the_table_of_libraries_means_the_same_in_a_copy(name: str) -> None:
    clean = Names(Tokens(KEY)).judged("kernel", name)
    assert meaning(clean, category_code("kernel")) == meaning(name, category_code("kernel"))


@pytest.mark.parametrize(
    ("category", "name", "means"),
    [
        ("cpu_op", "AcmeMoEBackward", "Backward"),
        ("user_annotation", "AcmeDataLoader.fetch.__next__", "DataLoader"),
        ("kernel", "acme_flash_attention_v3", "attention|flash"),
        ("cpu_op", "acme_compile compile_id=3", "compile_id="),
    ],
)
def test_a_name_of_ones_own_becomes_a_token_that_means_the_same(category: str, name: str, means: str) -> None:
    clean = Names(Tokens(KEY)).judged(category, name)
    assert "acme" not in clean.lower()
    assert any(word in clean for word in means.split("|"))
    assert meaning(clean, category_code(category)) == meaning(name, category_code(category))


def test_of_a_public_kernel_only_what_is_ones_own_becomes_a_token() -> None:
    own = Tokens(KEY).token("own", "acme::Swish<4096, float>")
    names = Names(Tokens(KEY))
    kernel = "void at::native::vectorized_elementwise_kernel<4, {}, std::array<char*, 2ul> >(int, float)"
    assert names.judged("kernel", kernel.format("acme::Swish<4096, float>")) == kernel.format(own)
    assert names.judged("user_annotation", "FSDP::all_gather (layers.3.mlp)").endswith(
        f"({names.own('layers')}.3.{names.own('mlp')})"
    )


def test_names_that_a_policy_keeps_stay() -> None:
    assert Names(Tokens(KEY), frozenset({"forward pass"})).judged("user_annotation", "forward pass") == "forward pass"


def test_order_of_sizes_stays_and_ratios_do_not() -> None:
    tokens = Tokens(KEY)
    sizes = sorted({0, 1, 2, 3, 2**62, *(random.Random(0).randrange(1 << n) for n in range(1, 63) for _ in range(8))})
    placed = [tokens.ordered(size) for size in sizes]
    assert placed == sorted(set(placed))
    assert len(set(placed)) == len(sizes)
    words = [tokens.shape(dims) for dims in ([4], [2, 3], [2, 4], [1024, 1024])]
    assert words == sorted(words)
    assert tokens.shape([2, 4]) == tokens.shape([2, 4]) != tokens.shape([4, 2])
    assert tokens.shape([2, 4])[:21] == tokens.shape([4, 2])[:21]  # as many elements
    other = Tokens(bytes(32))
    assert [other.ordered(s) / max(other.ordered(4096), 1) for s in (1024, 8192)] != [
        tokens.ordered(s) / max(tokens.ordered(4096), 1) for s in (1024, 8192)
    ]


def test_a_token_depends_on_the_key_and_the_key_turns_it_back(tmp_path: Path) -> None:
    tokens = Tokens(KEY)
    word = tokens.token("host", "node-17.acme")
    assert word != Tokens(bytes(32)).token("host", "node-17.acme")
    save_key(tmp_path / "key.json", tokens)
    again = load_key(tmp_path / "key.json")
    assert again.token("host", "node-17.acme") == word
    assert reveal(f"rank 3 on {word}, host_000000000000", again) == "rank 3 on node-17.acme, host_000000000000"
    (tmp_path / "key.json").write_text("{}")
    with pytest.raises(ConfigError, match="holds no key"):
        load_key(tmp_path / "key.json")


def test_names_of_files_say_the_same_ranks() -> None:
    tokens = Tokens(KEY)
    for name in (
        "acme-gpu/rank_3.json",
        "worker7.1700000000.pt.trace.json.gz",
        "attempt_0/window_002/rank_00012.trace.json.gz",
    ):
        clean = clean_path(name, tokens)
        assert rank_of_name(clean) == rank_of_name(name)
        assert "acme" not in clean
        assert "1700000000" not in clean
    one, two = (clean_path(f"job_170000000{n}_{n}.json", tokens) for n in (1, 2))
    assert [n[1] for n in parse_name(one).counts][-1] == 1
    assert parse_name(one).counts[-1][0] == parse_name(two).counts[-1][0]


def test_each_field_of_each_record_has_a_rule_or_is_left_out_by_name() -> None:
    """A new field is left at its default in copies, until someone has thought about it and writes its rule."""
    left_out = {"schema_version", "files", "signing"}
    for record, rules in RULES.items():
        fields = {field.name for field in dataclasses.fields(record)}
        assert set(rules) <= fields
        assert fields - set(rules) <= left_out, f"{record.__name__}: a rule for each, in privacy/records.py"


def test_of_a_configuration_numbers_and_switches_stay_and_names_of_the_users_go() -> None:
    of_the_users = {"run": {"dir": "/home/me"}, "script": {"lr": 1}, "env": {"ME": 2}}
    assert config_of({"schedule": {"active": 4, "made_up": 1}, **of_the_users}) == {"schedule": {"active": 4}}
    whole = dataclasses.asdict(ToolConfig())
    assert config_of(whole)["schedule"]["active"] == whole["schedule"]["active"]


def test_a_policy_file_changes_a_level_and_a_mistake_in_it_keeps_nothing(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("level: share\nname: for the lab\nshapes: keep\nkeep_names: [encoder]\n")
    policy = load_policy("public", path)
    assert policy == dataclasses.replace(LEVELS["share"], level="for the lab", shapes="keep", keep_names=("encoder",))
    for text, said in (
        ("shape: keep", "shape is not known"),
        ("shapes: maybe", "shapes: maybe is none of keep, token, drop"),
        ("level: all", "level: all is not known"),
        ("- shapes", "a list of"),
        ("keep_names: encoder", "keep_names"),
        ("shapes: [", "--policy"),
        ("shapes: [keep]", "is none of"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=said.replace("[", r"\[")):
            load_policy("public", path)


def test_a_report_has_words_for_each_kind_that_a_policy_may_drop() -> None:
    from rankscope.privacy.naming.policy import _CHOICES
    from rankscope.report.common.summary import REDACTED_WITHOUT

    droppable = {kind for kind, choices in _CHOICES.items() if "drop" in choices}
    assert droppable - set(REDACTED_WITHOUT) == {"shapes"}  # of which it says what follows from them


def test_the_page_has_the_table_of_levels() -> None:
    from rankscope.privacy.naming.policy import as_markdown

    page = Path(__file__).parents[3] / "docs" / "privacy.md"
    assert as_markdown() in page.read_text(encoding="utf-8")
