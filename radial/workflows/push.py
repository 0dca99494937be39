"""`push`: an agent on the Hugging Face hub, as two files that anyone can read safely and a page about them.

How it is fetched again is in `agents.hub`. Needs the extra `hub`.
"""

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from radial.agents.convert import Loaded
from radial.agents.hub import AGENT_FILES, HUB, address, hub, reached
from radial.agents.saved import save
from radial.core.agent import Agent, described
from radial.core.data import BadInput

PAGE = "README.md"


def push(agent: Loaded, repo: str, *, private: bool = False, message: str | None = None) -> dict[str, Any]:
    """Upload an agent; returns its address, pinned to the commit.

    agent  an imported one is uploaded as the agent it converts to
    repo   user/name, with or without hf:// before it; made if it is not there
    """
    text = repo if repo.startswith(HUB) else HUB + repo
    name, revision = address(text)
    api = hub(text)
    from huggingface_hub import get_token

    if get_token() is None:
        raise BadInput(f"{text}: pushing needs a token: hf auth login, or HF_TOKEN")
    with tempfile.TemporaryDirectory() as place:
        folder = save(agent, Path(place) / "agent")
        (folder / PAGE).write_text(page_of(agent, name))
        with reached(text):
            api.create_repo(name, private=private, exist_ok=True)
            done = api.upload_folder(
                repo_id=name, folder_path=folder, revision=revision, allow_patterns=[*AGENT_FILES, PAGE],
                commit_message=message or f"An agent of radial: {described(agent.card)}"[:200],
            )  # fmt: skip
    return {"repo": name, "commit": done.oid, "address": f"{HUB}{name}@{done.oid}", "url": str(done.commit_url)}


def page_of(agent: Agent, repo: str) -> str:
    """The page about an agent: where it acts, where it comes from, its results, how to load it."""
    card = agent.card
    facts = {
        "environment": "not recorded" if card.env is None else card.env.id,
        "agent": type(agent).__name__,
        "from": described(card),
        "trained for": f"{card.steps:,} steps" if card.steps else "not recorded",
    }
    rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in facts.items()]
    rows += [f"| {_cell(name)} | {_cell(value)} |" for name, value in _results(card.results)]
    tags = ["reinforcement-learning", "deep-reinforcement-learning", "adversarial-robustness"]
    if card.env is not None and re.fullmatch(r"[A-Za-z0-9._-]+", card.env.id):
        tags.append(card.env.id)
    head = ["---", "library_name: radial", "tags:", *(f"- {tag}" for tag in tags), "---"]
    use = ["```python", "import radial as rr", "", f'agent = rr.load("{HUB}{repo}")', "print(rr.audit(agent))", "```"]
    name = repo.partition("/")[2]
    return "\n".join([*head, "", f"# {name}", "", "| | |", "|---|---|", *rows, "", *use, ""])


def _results(results: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The numbers among the results on a card."""
    found = []
    for name, value in results.items():
        number = value.get("mean") if isinstance(value, dict) else value
        if isinstance(number, int | float) and not isinstance(number, bool):
            found.append((name, f"{number:.1f}" if isinstance(number, float) else str(number)))
    return found


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")
