"""`radial push`: an agent on the Hugging Face hub.

How it is uploaded is in `workflows.push`.
"""

import tyro
from rich.table import Table

from radial.commands.terminal import print_json, print_table, warnings_said


def push(
    agent: tyro.conf.Positional[str],
    repo: tyro.conf.Positional[str],
    env: str | None = None,
    kind: str | None = None,
    private: bool = False,
    message: str | None = None,
    json: bool = False,
) -> None:
    """Upload an agent to the Hugging Face hub: its card, its weights and a page; `hf://user/repo` loads it.

    Args:
        agent: a run's folder, a name in the zoo, or a third-party checkpoint, which is converted.
        repo: user/name on the hub; made if it is not there.
        env: an environment's id, for the card; default: the one the agent was trained in.
        kind: of an .onnx file, which does not say what its outputs are: q, categorical or gaussian.
        private: make a new repository private.
        message: of the commit.
        json: print one JSON object instead of a table.
    """
    from radial.workflows.loading import load
    from radial.workflows.push import push as upload

    with warnings_said():
        facts = {"agent": agent, **upload(load(agent, env, kind=kind), repo, private=private, message=message)}
    if json:
        print_json(facts)
        return
    table = Table("", "", title=agent, show_header=False)
    for name in ("address", "url"):
        table.add_row(name, facts[name])
    print_table(table)
