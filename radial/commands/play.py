"""`radial play`: one episode of an agent, clean or clean beside attacked, as a video and a return."""

from pathlib import Path

import tyro
from rich.table import Table

from radial.commands.terminal import print_json, print_table, say, warnings_said
from radial.core.errors import BadInput
from radial.evaluation.threads import one_thread_for


def play(
    agent: tyro.conf.Positional[str],
    env: str | None = None,
    attack: str = "none",
    radius: str | None = None,
    seed: int = 0,
    video: Path | None = None,
    json: bool = False,
) -> None:
    """Play one episode with an agent, record it as a video, and print its return.

    Args:
        agent: a run's folder, a name in the zoo, or a third-party checkpoint: papers, Stable-Baselines3, CleanRL.
        env: an environment's id; default: the one the agent was trained in.
        attack: a name as for evaluate; the same episode is then shown clean and under attack, side by side.
        radius: perturbation radius ε in network units, such as 0.075 or 3/255; needed with an attack.
        seed: random seed; the episode is the first one of evaluate with this seed.
        video: FILE.mp4 or FILE.gif; default: out/play-AGENT.mp4.
        json: print one JSON object instead of a table.
    """
    from radial.commands.screening import first_episode, read_attack, shoot
    from radial.envs.make import example_for
    from radial.envs.offscreen import NotRendered
    from radial.evaluation.play import Fittable, spec_of, streams
    from radial.reports.video import check_video
    from radial.workflows.loading import load

    chosen, epsilon = read_attack(attack, radius)
    path = video or Path("out") / f"play-{Path(agent).stem}.mp4"
    check_video(path)
    loaded = load(agent, env)
    one_thread_for(loaded.observation_shape)
    if loaded.card.env is None:
        near = example_for(loaded.observation_shape)
        raise BadInput(f"{agent}: no environment recorded; pass --env, such as --env {near}")
    spec = spec_of(loaded.card.env)
    with warnings_said():
        if isinstance(chosen, Fittable):
            say(f"fitting {attack}")
            chosen = chosen.fit(loaded, spec, streams(seed)[1])
        takes = first_episode(loaded, spec, None if attack == "none" else chosen, attack, epsilon, seed)
        try:
            shown: str | None = str(shoot(path, takes))
        except NotRendered as error:
            if video is not None:
                raise
            shown = None
            say(f"note: no video: {error}")
    episodes = [{"return": sum(take.rewards), "steps": len(take.rewards)} for _, take in takes]
    facts = {
        "agent": agent, "env": spec.id, "attack": attack, "radius": epsilon, "seed": seed, "clean": episodes[0],
        "attacked": episodes[1] if len(episodes) > 1 else None, "video": shown,
    }  # fmt: skip
    if json:
        print_json(facts)
        return
    table = Table("episode", "return", "steps", title=f"{agent} in {spec.id}")
    for (title, _), one in zip(takes, episodes, strict=True):
        table.add_row(title, f"{one['return']:.1f}", str(one["steps"]))
    print_table(table)
    if shown is not None:
        say(f"video: {shown}")
