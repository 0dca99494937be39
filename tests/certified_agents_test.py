"""From an agent to its certificates, where one network gives values and logits: nothing of its own is needed."""

import torch

import radial as rr

CARTPOLE = rr.EnvSpec("classic", "CartPole-v1", {"max_episode_steps": 40})


def lesson() -> rr.ActorCritic:
    """CartPole in a moment: push to where the pole falls, learned from labels."""
    agent = rr.ActorCritic((4,), 2, (16,))
    agent.initialize(torch.Generator().manual_seed(0))
    optimizer, draw = torch.optim.Adam(agent.parameters(), lr=0.02), torch.Generator().manual_seed(4)
    for _ in range(100):
        x = torch.randn(64, 4, generator=draw) * torch.tensor([1.0, 1.0, 0.1, 1.0])
        label = (10 * x[:, 2] + x[:, 3] > 0).long()
        optimizer.zero_grad()
        (-agent.log_prob(x, label).mean()).backward()
        optimizer.step()
    return agent


def test_attacks_and_certificates_take_an_actor_critic_as_it_is() -> None:
    agent = lesson()
    assert rr.evaluate(agent, CARTPOLE, episodes=2).mean == 40
    attacked = {radius: rr.evaluate(agent, CARTPOLE, rr.PGD(), radius, episodes=2).mean for radius in (0.01, 1.5)}
    assert attacked[0.01] > attacked[1.5]
    share = {radius: rr.acr(agent, CARTPOLE, radius, episodes=2).mean for radius in (0.0, 0.02, 1.5)}
    assert share[0.0] > 0.95  # all but ties
    assert share[0.0] > share[0.02] > share[1.5]
    worst = {radius: rr.gwc(agent, CARTPOLE, radius, episodes=2).mean for radius in (0.0, 1.5)}
    assert worst[0.0] == 40
    assert worst[1.5] <= attacked[1.5]  # all is possible, and the least likely action is always taken
