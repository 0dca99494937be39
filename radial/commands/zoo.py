"""`radial zoo list`: the agents that come with the repository."""

from rich.table import Table

from radial.commands.terminal import print_json, print_table, say


def list_zoo(json: bool = False) -> None:
    """List the agents of the zoo; `radial evaluate NAME` plays one.

    Args:
        json: print a JSON object, with the results on each card.
    """
    from radial.agents.zoo import zoo_agents, zoo_folder

    agents, broken = zoo_agents()
    for fault in broken:
        say(f"left out: {fault}")
    if json:
        rows = [
            {
                "name": agent.name,
                "env": None if agent.card.env is None else agent.card.env.id,
                "method": agent.method,
                "steps": agent.card.steps,
                "seed": agent.card.seed,
                "results": dict(agent.card.results),
            }
            for agent in agents
        ]
        print_json({"folder": str(zoo_folder()), "agents": rows})
        return
    table = Table(title=f"Agents in {zoo_folder()}")
    for heading in ("agent", "env", "method", "steps", "seed", "results"):
        table.add_column(heading)
    for agent in agents:
        card = agent.card
        table.add_row(
            agent.name, "–" if card.env is None else card.env.id, agent.method, f"{card.steps:,}",
            "–" if card.seed is None else str(card.seed),
            "  ".join(f"{key} {_short(value)}" for key, value in card.results.items() if _is_score(value)),
        )  # fmt: skip
    print_table(table)
    if not agents:
        say("no agents there; the variable RADIAL_ZOO names another folder")


def _is_score(value: object) -> bool:
    return not isinstance(value, dict) or "mean" in value


def _short(value: object) -> str:
    """A result in a few letters: numbers rounded, an evaluation by its mean."""
    if isinstance(value, dict):
        value = value["mean"]
    return f"{value:.1f}" if isinstance(value, float) else str(value)
