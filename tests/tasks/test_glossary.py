from __future__ import annotations

from pathlib import Path

import pytest

from tasks.glossary import GLOSSARY, explain, glossary_markdown

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_of_metrics_is_the_glossary() -> None:
    assert PAGE.read_text() == glossary_markdown(), "regenerate it: python -m tasks.glossary > docs/metrics.md"


@pytest.mark.parametrize("key", GLOSSARY)
def test_every_explanation_is_a_sentence(key: str) -> None:
    assert GLOSSARY[key][0].isalnum()
    assert GLOSSARY[key].endswith(".")


def test_a_family_explains_its_members_and_an_exact_key_wins() -> None:
    assert explain("reward/number") == GLOSSARY["reward/<function>"]
    assert explain("seconds/sample") == GLOSSARY["seconds/<kind>"]
    assert explain("seconds/cycle") == GLOSSARY["seconds/cycle"]
    assert explain("no_such_key") is None
    assert explain("nothing/known") is None
