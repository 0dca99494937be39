"""The kinds of agents there are, by the name a card gives them, and whether one can take the weights of another.

How an agent of others becomes one of these is in `adopted`.
"""

from radial.agents.actor_critic import ActorCritic
from radial.agents.foreign import Wrapped
from radial.agents.impala_agent import ImpalaAgent
from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.agents.q_agent import QAgent
from radial.core.data import BadInput

AnyAgent = GaussianAgent | CategoricalAgent | QAgent | ActorCritic | ImpalaAgent
AGENTS: dict[
    str, type[GaussianAgent] | type[CategoricalAgent] | type[QAgent] | type[ActorCritic] | type[ImpalaAgent]
] = {
    "gaussian": GaussianAgent,
    "categorical": CategoricalAgent,
    "q": QAgent,
    "actor-critic": ActorCritic,
    "impala": ImpalaAgent,
}
Loaded = AnyAgent | Wrapped  # what a path may lead to: an agent of ours, or one of others


def check_fit(init: AnyAgent, agent: AnyAgent) -> None:
    """Refuse an agent to start from whose weights do not fit the agent to be trained."""
    if type(init) is not type(agent):
        raise BadInput(f"init must be a {type(agent).__name__}, got a {type(init).__name__}")
    for name in ("observation_shape", "actions", "hidden", "activation"):
        own, needed = getattr(init, name, None), getattr(agent, name, None)
        always = name == "hidden" and isinstance(agent, ImpalaAgent)  # whose network is always the same
        if own != needed and not always:
            raise BadInput(f"init must fit the training: its {name} is {own}, needed is {needed}")
