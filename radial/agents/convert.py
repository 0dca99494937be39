"""The kinds of agents that can be trained and saved, and imported agents converted into one of them.

How imported agents are read from files is in `importers`; one that is only audited stays as it was read.
"""

from typing import NoReturn

import torch
from torch import Tensor, nn

from radial.agents.actor_critic import ActorCritic, ImpalaAgent, ShallowAgent
from radial.agents.foreign import WrappedAgent, WrappedCategorical, WrappedGaussian, WrappedQ, no_agent
from radial.agents.networks import ACTIVATIONS, NatureDueling
from radial.agents.normalizer import TINY, Moments
from radial.agents.policies import CategoricalAgent, DeterministicAgent, GaussianAgent, SoftmaxPolicy
from radial.agents.preprocessing import AsFloat, Frames, RunningScale
from radial.agents.q_agent import QAgent
from radial.agents.starts import fold_batch_norm
from radial.core.agent import Agent
from radial.core.data import BadInput, Discrete

# Agents of radial's own, which can be trained and saved, by the name their card gives them.
AnyAgent = GaussianAgent | CategoricalAgent | DeterministicAgent | QAgent | ActorCritic | ImpalaAgent | ShallowAgent
AGENTS: dict[
    str,
    type[GaussianAgent]
    | type[CategoricalAgent]
    | type[DeterministicAgent]
    | type[QAgent]
    | type[ActorCritic]
    | type[ImpalaAgent],
] = {  # a ShallowAgent is an ImpalaAgent
    "gaussian": GaussianAgent,
    "categorical": CategoricalAgent,
    "deterministic": DeterministicAgent,
    "q": QAgent,
    "actor-critic": ActorCritic,
    "impala": ImpalaAgent,
    "shallow": ShallowAgent,
}
Loaded = AnyAgent | WrappedAgent  # an agent of our own, or an imported one

NO_CLIP = 1e8  # a clip that no observation meets
AffineLayer = nn.Linear | nn.Conv2d


def own(agent: Loaded, field: str) -> AnyAgent:
    """An agent that can be trained and saved, with the outputs of `agent`; one of our own is given back as it is.

    field  the caller's name of it, for the message where none of our kinds can hold it
    """
    if isinstance(agent, AnyAgent):
        return agent
    if not isinstance(agent, WrappedAgent):
        raise no_agent(field, agent)
    with torch.no_grad():
        adopted = _q(agent, field) if isinstance(agent, WrappedQ) else _policy(agent, field)
    adopted.card = agent.card
    return adopted


def agent_kind(agent: Agent) -> str | None:
    """What an agent's scores are, the same before and after `own`: q, categorical, gaussian or deterministic.

    None: an agent of the caller's, which need not say.
    """
    if isinstance(agent, QAgent | WrappedQ):
        return "q"
    if isinstance(agent, SoftmaxPolicy):
        return "categorical"
    if isinstance(agent, GaussianAgent | DeterministicAgent | WrappedGaussian):
        return "deterministic" if agent.log_std is None else "gaussian"
    return None


def check_init(init: Agent, agent: AnyAgent) -> None:
    """Refuse an agent to start from whose weights do not fit the agent to be trained."""
    if type(init) is not type(agent):
        raise BadInput(f"init must be a {type(agent).__name__}, got a {type(init).__name__}")
    needed = _architecture(agent)
    for name, found in _architecture(init).items():
        if found != needed[name]:
            raise BadInput(f"init must fit the training: its {name} is {found}, needed is {needed[name]}")


def check_teacher(init: Agent | None, shape: tuple[int, ...], actions: Discrete) -> None:
    """Refuse a teacher whose policy cannot be imitated in an env with these observations and actions."""
    if not isinstance(init, ActorCritic):
        found = "none" if init is None else f"a {type(init).__name__}"
        raise BadInput(f"init must be an ActorCritic, the teacher of QDagger, got {found}")
    if (init.observation_shape, init.actions) != (shape, actions):
        wanted = f"observations {shape} and {actions.n} actions"
        raise BadInput(f"init must be a teacher with {wanted}, got {init.observation_shape} and {init.actions.n}")


def _architecture(agent: Agent) -> dict[str, object]:
    """The facts that two agents of one type must share for the weights of one to fit the other."""
    facts: dict[str, object] = {"observation_shape": agent.observation_shape, "actions": agent.actions}
    if isinstance(agent, QAgent | ActorCritic | ShallowAgent):  # the network of an ImpalaAgent has one size
        facts["hidden"] = agent.hidden
    if isinstance(agent, GaussianAgent | CategoricalAgent | DeterministicAgent):
        facts |= {"hidden": agent.hidden, "activation": agent.activation}
    return facts


# ------------------------------------------------------------------------------------------------------ action values


def _q(agent: WrappedQ, field: str) -> QAgent:
    """Both heads of a dueling network begin as copies of the plain head: A takes it centred, V its mean action."""
    if isinstance(agent.door, Frames) and agent.door.shares:
        *body, hidden, head = _nature(fold_batch_norm(agent.network), field)
        made = QAgent((agent.door.channels, NatureDueling.SIDE, NatureDueling.SIDE), agent.actions.n)
    elif isinstance(agent.door, AsFloat):
        (*body, hidden, head), _ = _mlp(fold_batch_norm(agent.network), field, least=2, activations=("relu",))
        *first, last = _widths(body)  # the last features are as wide as the heads
        made = QAgent((body[0].weight.shape[1],), agent.actions.n, (*first, max(last, *_widths([hidden]))))
    else:
        _refuse(field, "a Q agent of radial sees vectors as they are, or frames as shares of 255")
    network = made.network
    for ours, theirs in zip(_affine(network.features), body, strict=True):
        _copy(ours, *_numbers(theirs))
    weight, bias = _numbers(head)
    for branch, rows in (
        (network.advantage, (weight, bias)),
        (network.value, (weight.mean(0)[None], bias.mean(0)[None])),
    ):
        inner, outer = _affine(branch)
        _copy(inner, *_numbers(hidden))
        _copy(outer, *rows)
    return made


def _nature(network: nn.Module, field: str) -> list[AffineLayer]:
    """The layers of the network of Mnih et al. (2015)."""
    side = NatureDueling.SIDE
    found, ours = _affine(network), _affine(QAgent((1, side, side), 1).network.advantages)
    between = [type(layer) for layer in network.children() if not isinstance(layer, AffineLayer)]
    alike = [_size(layer) for layer in found[:-1]] == [_size(layer) for layer in ours[:-1]]
    if not (isinstance(network, nn.Sequential) and alike and between == [*[nn.ReLU] * 3, nn.Flatten, nn.ReLU]):
        _refuse(field, f"a Q agent of radial for frames has the network of Mnih et al. (2015), for {side}×{side}")
    return found


def _size(layer: AffineLayer) -> tuple[object, ...]:
    """The sizes that must agree: outputs, and inputs or kernel and stride."""
    shape = layer.weight.shape
    return (shape[0], *shape[2:], layer.stride, layer.padding) if isinstance(layer, nn.Conv2d) else tuple(shape)


# ----------------------------------------------------------------------------------------------------------- policies


def _policy(
    agent: WrappedCategorical | WrappedGaussian, field: str
) -> CategoricalAgent | GaussianAgent | DeterministicAgent:
    """Layer by layer; where policy and critic are of different widths, the narrower gets units that are always 0."""
    if not isinstance(agent.door, AsFloat | RunningScale):
        _refuse(field, "a policy of radial sees vectors, as they are or normalised")
    if isinstance(agent, WrappedGaussian) and _stretched(agent.network):
        return _deterministic(agent, agent.door, field)
    actor, activation = _mlp(fold_batch_norm(agent.network), field, least=1, activations=tuple(ACTIVATIONS))
    theirs = None if agent.critic is None else fold_batch_norm(agent.critic)
    critic = [] if theirs is None else _mlp(theirs, field, least=1, activations=(activation,))[0]
    if critic and len(critic) != len(actor):
        _refuse(field, f"its policy has {len(actor) - 1} hidden layers and its critic {len(critic) - 1}, not as many")
    hidden = tuple(max(both) for both in zip(_widths(actor[:-1]), _widths((critic or actor)[:-1]), strict=True))
    shape = (actor[0].weight.shape[1],)
    made: CategoricalAgent | GaussianAgent
    if isinstance(agent, WrappedGaussian):
        made = GaussianAgent(shape, agent.actions.size, hidden, activation)
        if agent.log_std is None or agent.log_std.shape != made.log_std.shape:
            _refuse(field, "the spread of its actions is not known, or depends on the state")
        made.log_std.copy_(agent.log_std)
    else:
        made = CategoricalAgent(shape, agent.actions.n, hidden, activation)
    made.initialize(torch.Generator().manual_seed(0))  # for a critic that nobody gave
    for network, layers in ((made.network, actor), (made.critic, critic)):
        for ours, theirs in zip(_affine(network), layers, strict=bool(layers)):
            _copy(ours, *_numbers(theirs))
    _normalize(made, agent.door)
    made.clips_actions = agent.clips_actions
    return made


def _stretched(network: nn.Module) -> bool:
    """Whether a network ends in a tanh, stretched to a box by a diagonal layer, as actors of TD3, DDPG and SAC do."""
    layers = list(network) if isinstance(network, nn.Sequential) else []
    if len(layers) < 3 or type(layers[-2]) is not nn.Tanh or type(layers[-1]) is not nn.Linear:
        return False
    weight = layers[-1].weight
    return weight.shape[0] == weight.shape[1] and torch.equal(weight, torch.diag(weight.diagonal()))


def _deterministic(agent: WrappedGaussian, door: AsFloat | RunningScale, field: str) -> DeterministicAgent:
    """The actor layer by layer; its critic, of pairs of state and action, was not read and begins untrained."""
    assert isinstance(agent.network, nn.Sequential)
    actor, activation = _mlp(agent.network[:-2], field, least=1, activations=tuple(ACTIVATIONS))
    made = DeterministicAgent(
        (actor[0].weight.shape[1],), agent.actions.size, _widths(actor[:-1]), activation
    )  # fmt: skip
    made.initialize(torch.Generator().manual_seed(0))
    for ours, theirs in zip(_affine(made.network), [*actor, *_affine(agent.network)[-1:]], strict=True):
        _copy(ours, *_numbers(theirs))
    _normalize(made, door)
    made.clips_actions = agent.clips_actions
    return made


def _normalize(made: CategoricalAgent | GaussianAgent | DeterministicAgent, door: AsFloat | RunningScale) -> None:
    """The moments with which our normaliser does the same as the door."""
    made.normalizer.clip = NO_CLIP
    if isinstance(door, RunningScale):
        made.normalizer.clip = door.clip
        total = torch.tensor(max(door.count, 2.0), dtype=torch.float64)
        made.normalizer.moments.set(Moments(total, door.mean, (door.std - TINY).clamp(min=0) ** 2 * (total - 1)))
    made.normalizer.freeze()


# ------------------------------------------------------------------------------------------------------------- layers


def _mlp(network: nn.Module, field: str, *, least: int, activations: tuple[str, ...]) -> tuple[list[AffineLayer], str]:
    """The linear layers of a plain MLP with at least so many hidden ones, and which activation lies between them."""
    layers = list(network) if isinstance(network, nn.Sequential) else []
    kinds = {name: ACTIVATIONS[name] for name in activations}
    found = next((name for name, kind in kinds.items() if any(type(layer) is kind for layer in layers)), activations[0])
    plain = [type(layer) for layer in layers[::2]] == [nn.Linear] * (len(layers) // 2 + 1)
    if not plain or any(type(layer) is not kinds[found] for layer in layers[1::2]) or len(layers) < 2 * least + 1:
        names = " or ".join(activations)
        _refuse(field, f"its network is not an MLP of at least {least} hidden layers with {names} between them")
    return [layer for layer in layers if isinstance(layer, nn.Linear)], found


def _affine(network: nn.Module) -> list[AffineLayer]:
    return [layer for layer in network.modules() if isinstance(layer, AffineLayer)]


def _widths(layers: list[AffineLayer]) -> tuple[int, ...]:
    return tuple(layer.weight.shape[0] for layer in layers)


def _numbers(layer: AffineLayer) -> tuple[Tensor, Tensor]:
    weight = layer.weight.detach()
    return weight, weight.new_zeros(weight.shape[0]) if layer.bias is None else layer.bias.detach()


def _copy(ours: AffineLayer, weight: Tensor, bias: Tensor) -> None:
    """Weights into a layer at least as large; the rest is 0 on both its sides, and stays so in training."""
    assert ours.bias is not None
    ours.weight.zero_()
    ours.bias.zero_()
    ours.weight[: weight.shape[0], : weight.shape[1]] = weight
    ours.bias[: bias.shape[0]] = bias


def _refuse(field: str, why: str) -> NoReturn:
    raise BadInput(f"{field} can be audited, but neither trained nor saved: {why}")
