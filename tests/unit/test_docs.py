"""Generated pages are current, links are valid, and the terms are those of the glossary."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from pathlib import Path

import pytest

import rankscope
from rankscope.config import ToolConfig
from rankscope.demo.faults import FAULTS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "launch").glob("*.md"), ROOT / "benchmarks" / "README.md"]
)
SOURCE = Path(rankscope.__file__).parent


def rows(heading: str) -> list[list[str]]:
    """Cells of the table of the glossary whose head begins with ``heading``."""
    table = (DOCS / "glossary.md").read_text(encoding="utf-8").partition(f"| {heading} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines()[2:]]


TERMS = [term for term, _ in rows("term")]
AVOIDED = [word for words, _ in rows("not this") for word in words.split(", ")]


def generated():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PAGES


@pytest.mark.parametrize(("page", "make"), generated().items(), ids=generated())
def test_a_generated_page_is_what_the_code_says(page: str, make) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == make(), "make docs"


def test_the_site_has_all_pages_and_no_page_leads_out_of_it() -> None:
    """What `mkdocs build --strict` asks for, which few have installed."""
    shown = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {path.relative_to(DOCS).as_posix(): path for path in DOCS.rglob("*.md")}
    assert sorted(shown) == sorted(pages)
    for path in pages.values():
        for target in re.findall(r"\]\(([^)#:]+)[^):]*\)", path.read_text()):
            assert (path.parent / target).resolve().is_relative_to(DOCS.resolve()), f"{path.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        other = page.parent / file if file else page
        assert other.exists(), target
        if anchor:
            heads = re.findall(r"(?m)^#+ (.*)$", other.read_text(encoding="utf-8"))
            slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in slugs, target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_each_setting_has_an_option_of_its_own_and_a_key_that_exists(page: Path) -> None:
    """``-S a=1 b=2`` is refused: the second is taken for the script."""
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"-S [\w.+]+=\S+ +[a-z_]+\.[a-z_]+=\S*", text) == []
    config = dataclasses.asdict(ToolConfig())
    keys = {f"{group}.{key}" for group, values in config.items() for key in values}
    named = set(re.findall(r"-S ([a-z]+\.[a-z_]+)=", text))
    assert {key for key in named if not key.startswith(("script.", "env."))} - keys == set()  # those are the user's


def test_the_readme_counts_the_faults_of_the_demo() -> None:
    (number,) = re.findall(r"lists (\d+) other faults", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert int(number) == len(set(FAULTS) - {"none", "input_stall"})  # the demo's own, and no fault


def test_the_glossary_explains_what_is_used() -> None:
    assert len(TERMS) > 20
    assert sorted(set(TERMS)) == sorted(TERMS)
    texts = [p.read_text(encoding="utf-8") for p in (*PAGES, *SOURCE.rglob("*.py")) if p.name != "glossary.md"]
    everything = " ".join(" ".join(texts).split()).lower()
    assert [term for term in TERMS if term not in everything] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_words_that_the_glossary_replaces_are_not_used(page: Path) -> None:
    if page.name == "glossary.md" or page.parent.name == "benchmarks":
        return
    text = " ".join(page.read_text(encoding="utf-8").lower().split())
    assert [word for word in AVOIDED if re.search(rf"\b{word}", text)] == []


def test_the_tree_of_the_architecture_is_that_of_the_source() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    tree = text.partition("    src/rankscope/\n")[2].partition("    tests/")[0]
    named: set[str] = set()
    above: list[str] = []
    for line in tree.splitlines():
        if found := re.match(r"^((?: {2})+)(\w+)/ ", line):
            above = [*above[: len(found[1]) // 2 - 3], found[2]]
            named.add("/".join(above))
    folders = {str(p.parent.relative_to(SOURCE)) for p in SOURCE.rglob("__init__.py")} - {"."}
    assert named - {"agent/inject", "node/health"} == folders - {"agent/inject", "node/health"}


def test_modules_that_the_architecture_names_exist() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    agent = text.partition("happens at step boundaries in the training thread:\n")[2].partition("Announcements travel")[
        0
    ]
    for module in re.findall(r"^ +((?:steps|windows|backends|process)/\w+|session)\b", agent, re.M):
        assert (SOURCE / "agent" / f"{module}.py").is_file(), module


def test_contributing_names_files_and_targets_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))
    assert set(re.findall(r"\bmake ([a-z-]+)`", text)) <= targets
    assert set(re.findall(r"(?m)^make ([a-z-]+)", text)) <= targets
    paths = re.findall(r"\b((?:src|tests|benchmarks|docs)/[\w./]+)", text)
    assert len(paths) > 15
    assert [path for path in paths if not (ROOT / path.rstrip(".")).exists() and "NAME" not in path] == []


def test_the_workflows_test_what_the_package_claims() -> None:
    package = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pythons = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', package)
    assert re.findall(r'"([\d.]+)"', re.search(r"python: \[(.*)\]", workflow)[1]) == pythons
    torches = re.findall(r'"([\d.]+)\.\*"', re.search(r"torch: \[(.*?)\]", workflow)[1])
    assert len(torches) == 3
    assert torches[0] == re.search(r'"torch>=([\d.]+)"', package)[1]
    assert torches[-1] == re.search(r"(?m)^torch==(\d+\.\d+)", pinned)[1]


def test_the_version_is_the_same_everywhere() -> None:
    package = re.search(r'(?m)^version = "(.*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))[1]
    citation = re.search(r"(?m)^version: (.*)", (ROOT / "CITATION.cff").read_text(encoding="utf-8"))[1]
    assert package == citation == rankscope.__version__


def test_pre_commit_uses_the_pinned_versions() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"(?m)^(\w+)==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8")))
    found = dict(re.findall(r"repo: .*/(ruff|codespell)\S*\n\s+rev: v(\S+)", hooks))
    assert found == {name: pinned[name] for name in ("ruff", "codespell")}
