"""`radial leaderboard`: the zoo's agents and any others under one protocol, ranked by the worst of all attacks.

How they are played is in `workflows.leaderboard`, how the result is shown in `reports.standings`.
"""

import sys
from pathlib import Path

from radial.commands.scaling import HERE, Scaled
from radial.commands.terminal import print_json, say, warnings_said, watch
from radial.evaluation.threads import one_thread_for


def leaderboard(
    only: tuple[str, ...] = (),
    agents: tuple[Path, ...] = (),
    fits: Path = Path("runs/adversaries"),
    budget: float | None = None,
    fresh: bool = False,
    scaling: Scaled = HERE,
    out: Path = Path("results"),
    json: bool = False,
) -> None:
    """Rank agents by their return under the worst of all attacks, learned adversaries included.

    Writes OUT/leaderboard.json (every return), .md, .png and .html. Each cell is saved when it is finished and not
    played again, so an interrupted command resumes where it stopped. Third-party files are evaluated, never copied.

    Args:
        only: tasks to play: hopper, walker2d, halfcheetah, cartpole, pong, freeway; default: all.
        agents: files, or folders of agents and files, to be ranked beside the zoo.
        fits: where adversaries that were trained against an agent are kept, to be used again.
        budget: minutes, after which nothing new is begun; 0 shows what is known.
        fresh: evaluate again what is known.
        out: where the results are kept.
        scaling: where jobs run.
        json: print one JSON object instead of the tables.
    """
    from radial.reports import standings
    from radial.runs.files import write_atomic
    from radial.workflows import leaderboard as board
    from radial.workflows.challenges import CHALLENGES

    if not {"pong", "freeway"} & set(only or CHALLENGES):
        one_thread_for((1,))  # vectors
    with warnings_said():
        found = board.leaderboard(
            out, only=only, agents=agents, fits=fits, budget=budget, fresh=fresh, watch=watch, place=scaling.place(),
            storage=scaling.storage, say=say,
        )  # fmt: skip
    if not found["tasks"]:
        why = "the zoo has none for these tasks, and --agents named none"
        if found["waiting"] and budget is not None:
            why = f"{out} holds no result of any, and none was completed within --budget {budget:g}"
        say(f"radial: no agent to rank: {why}")
        sys.exit(1)
    write_atomic(out / "leaderboard.md", standings.standings_markdown(found))
    write_atomic(out / "leaderboard.html", standings.standings_page(found))
    standings.standings_figure(found, out / "leaderboard.png")
    say(f"the tables are in {out / 'leaderboard.md'} and {out / 'leaderboard.html'}")
    if json:
        print_json(found)
    else:
        sys.stdout.write(standings.standings_markdown(found))
