"""RADIAL in a PPO loop of your own: three lines in the loss make the policy robust, here in a CleanRL-style loop.

Your networks, your rollouts, your update; `radial` bounds the actor's logits over all observations within ε, evaluates
and certifies. A minute or two on one core:

    python examples/own_loop.py
"""

import argparse

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import nn

import radial as rr
from radial.losses.policy import Categorical
from radial.losses.policy_radial import worst_case_likelihood

ENV, NUM_ENVS, ROLLOUT, EPOCHS, MINIBATCHES = "CartPole-v1", 8, 128, 10, 16
GAMMA, LAMBDA, CLIP, RATE = 0.99, 0.95, 0.2, 1e-3


def mlp(outputs: int, std: float) -> nn.Sequential:
    """Two hidden layers of 32, orthogonal weights."""
    network = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, outputs))
    for layer, gain in zip(network[::2], (2**0.5, 2**0.5, std), strict=True):
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return network


def ppo(steps: int, radius: float, kappa: float, seed: int = 0) -> nn.Module:
    """PPO on CartPole; the actor (B, 4) → (B, 2) logits. `kappa`: the share of PPO's own loss; 1: plain PPO."""
    torch.manual_seed(seed)
    envs = gym.vector.SyncVectorEnv(
        [lambda: gym.make(ENV)] * NUM_ENVS, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )
    actor, critic = mlp(2, 0.01), mlp(1, 1.0)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=RATE, eps=1e-5)
    updates = max(1, steps // (NUM_ENVS * ROLLOUT))
    obs, done = torch.tensor(envs.reset(seed=seed)[0]), torch.zeros(NUM_ENVS)
    for update in range(updates):
        progress = update / updates
        optimizer.param_groups[0]["lr"] = RATE * (1 - progress)
        epsilon = radius * min(1.0, max(0.0, 2 * progress - 0.25))  # learn the task first, then let ε grow

        # Play.
        seen, taken, log_probs, values, rewards, dones = ([] for _ in range(6))
        with torch.no_grad():
            for _ in range(ROLLOUT):
                policy = torch.distributions.Categorical(logits=actor(obs))
                action = policy.sample()
                seen.append(obs), taken.append(action), dones.append(done)
                log_probs.append(policy.log_prob(action)), values.append(critic(obs).squeeze(1))
                after, reward, ended, cut, _ = envs.step(action.numpy())
                obs, done = torch.tensor(after), torch.tensor(ended | cut, dtype=torch.float32)
                rewards.append(torch.tensor(reward, dtype=torch.float32))
            advantage, advantages, ahead, live = torch.zeros(NUM_ENVS), [], critic(obs).squeeze(1), 1 - done
            for t in reversed(range(ROLLOUT)):  # generalised advantage estimation
                delta = rewards[t] + GAMMA * live * ahead - values[t]
                advantage = delta + GAMMA * LAMBDA * live * advantage
                advantages.insert(0, advantage)
                ahead, live = values[t], 1 - dones[t]
        b_obs, b_action, b_log_prob = torch.cat(seen), torch.cat(taken), torch.cat(log_probs)
        b_advantage = torch.cat(advantages)
        b_return = b_advantage + torch.cat(values)

        # Learn.
        for rows in (r for _ in range(EPOCHS) for r in torch.randperm(len(b_obs)).chunk(MINIBATCHES)):
            x, action, adv = b_obs[rows], b_action[rows], b_advantage[rows]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            old, log_prob = b_log_prob[rows], torch.distributions.Categorical(logits=actor(x)).log_prob(action)
            ratio = (log_prob - old).exp()
            loss = -torch.minimum(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv).mean()
            if kappa < 1:
                bounds = rr.ibp(actor, rr.Ball(x, epsilon))  # of the logits, over every observation within ε
                worst = worst_case_likelihood(log_prob, Categorical().log_prob_bounds(bounds, action), old, adv, CLIP)
                loss = kappa * loss - (1 - kappa) * worst.mean()
            loss = loss + 0.5 * F.mse_loss(critic(x).squeeze(1), b_return[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()
    envs.close()
    return actor.eval()


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    """Train without and with the term; clean return, return under PGD, share of certified actions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=80_000, help="of each training")
    parser.add_argument("--radius", type=float, default=0.1)
    parser.add_argument("--kappa", type=float, default=0.5, help="share of PPO's own loss; the rest is RADIAL's term")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    found = {}
    for name, kappa in (("PPO", 1.0), ("PPO + RADIAL term", given.kappa)):
        actor = ppo(given.steps, given.radius, kappa, given.seed)
        agent = rr.wrap(actor, kind="categorical", observation_shape=(4,))
        clean = rr.evaluate(agent, ENV, episodes=given.episodes)
        # An adversary may use less than ε, and changing an action at every step is not always what hurts most.
        radii = (given.radius / 2, given.radius)
        attacked = min(rr.evaluate(agent, ENV, rr.PGD(), each, given.episodes).mean for each in radii)
        certified = rr.acr(agent, ENV, given.radius, "crown", episodes=min(5, given.episodes))
        found[name] = {"clean": clean.mean, "pgd": attacked, "certified": certified.mean}
        print(
            f"{name}: clean return {clean.mean:.0f}, under PGD at ε ≤ {given.radius:g} {attacked:.0f}, "
            f"certified actions {int(100 * certified.mean)} %"
        )
    return found


if __name__ == "__main__":
    main()
