"""Agents on the Hugging Face hub: `hf://user/repo`, or `hf://user/repo@revision` for one version.

Only the files that are read are downloaded, all of one commit, into the cache of huggingface_hub; they are then read
like any other file, by readers that execute nothing. Needs the extra `hub`.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from radial.core.errors import BadInput

if TYPE_CHECKING:
    from huggingface_hub import HfApi

HUB = "hf://"
AGENT_FILES = ("card.json", "weights.safetensors")
SUFFIXES = (".zip", ".cleanrl_model", ".model", ".pt", ".pth", ".onnx")  # of third-party agents, in this order
BESIDE = ("vec_normalize.pkl", "vecnormalize.pkl", "config.yml", "args.yml")  # that Stable-Baselines3 agents come with
NO_AGENT = ("train_eval_metrics.zip", "replay_buffer.zip")  # that rl-zoo uploads as well
LARGEST = 2 << 30  # bytes of one file
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
ADDRESS = re.compile(rf"hf://({_NAME}/{_NAME})(?:@([A-Za-z0-9][A-Za-z0-9._/-]{{0,199}}))?")
SNAPSHOT = re.compile(r"/models--(?P<user>[^/]+?)--(?P<repo>[^/]+)/snapshots/(?P<commit>[0-9a-f]{40})(?:/|$)")


def address(text: str) -> tuple[str, str | None]:
    """The repository and the revision in hf://user/repo@revision."""
    found = ADDRESS.fullmatch(text)
    if found is None:
        raise BadInput(f"{text[:200]!r} must be hf://user/repo or hf://user/repo@revision")
    return found[1], found[2]


def fetch(text: str) -> Path:
    """Download an agent: the folder of one of ours, or the file of another library's."""
    repo, revision = address(text)
    api = hub(text)
    with reached(text):
        from huggingface_hub import errors

        try:
            info = api.model_info(repo, revision=revision, files_metadata=True)
        except (OSError, errors.OfflineModeIsEnabled, errors.HTTPError) as error:  # type: ignore[attr-defined]
            kept = None if isinstance(error, errors.HfHubHTTPError) else _kept(repo, revision or "main")
            if kept is None:
                raise
            return kept
        files = {each.rfilename: each.size or 0 for each in info.siblings or []}
        wanted = _wanted(text, files)
        large = [name for name in wanted if files[name] > LARGEST]
        if large:
            raise BadInput(f"{text}: {large[0]} has {files[large[0]]} bytes, at most {LARGEST} are downloaded")
        paths = [_download(repo, name, info.sha) for name in wanted]
    return paths[0].parent if wanted[0] in AGENT_FILES else paths[0]


def origin(path: Path) -> str | None:
    """The address of an agent in the hub's cache, with its commit; None for every other path."""
    found = SNAPSHOT.search(str(path.absolute()))
    return None if found is None else f"{HUB}{found['user']}/{found['repo']}@{found['commit']}"


def hub(text: str) -> "HfApi":
    """The hub's interface, where huggingface_hub is installed."""
    if find_spec("huggingface_hub") is None:
        raise BadInput(f"{text}: the hub needs huggingface_hub: pip install 'radial-rl[hub]'")
    from huggingface_hub import HfApi

    return HfApi(endpoint=_endpoint())


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


def _cache() -> str | None:
    return os.environ.get("HF_HUB_CACHE") or None


@contextmanager
def reached(text: str) -> Iterator[None]:
    """Turn the hub's answers into one line: what was asked for is wrong, or the hub cannot be reached."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError:
        raise BadInput(f"{text}: ask for access on its page, then log in: hf auth login, or HF_TOKEN") from None
    except errors.RepositoryNotFoundError:
        raise BadInput(f"{text}: there is no such repository, or it is private: hf auth login, or HF_TOKEN") from None
    except errors.RevisionNotFoundError:
        raise BadInput(f"{text}: there is no such revision") from None
    except (errors.HFValidationError, errors.EntryNotFoundError) as error:
        raise BadInput(f"{text}: {_line(error)}") from None
    except errors.OfflineModeIsEnabled:
        raise BadInput(f"{text}: HF_HUB_OFFLINE is set, and it is not in the cache") from None
    except errors.LocalTokenNotFoundError:
        raise BadInput(f"{text}: a token is needed: hf auth login, or HF_TOKEN") from None
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        if status in (401, 403):
            raise BadInput(f"{text}: the token does not allow this ({status}): hf auth login, or HF_TOKEN") from None
        raise ConnectionError(f"{text}: the hub answered with an error: {_line(error)}") from None
    except (OSError, errors.HTTPError) as error:  # type: ignore[attr-defined]
        raise ConnectionError(f"{text}: the hub cannot be reached: {_line(error)}") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _wanted(text: str, files: dict[str, int]) -> Sequence[str]:
    """The files to download, that of the agent first."""
    if all(name in files for name in AGENT_FILES):
        return AGENT_FILES
    plain = sorted(name for name in files if re.fullmatch(_NAME, name) and name not in NO_AGENT)
    agents = [name for suffix in SUFFIXES for name in plain if name.endswith(suffix)]
    if len(agents) != 1:
        found = "none" if not agents else ", ".join(agents[:5])
        raise BadInput(f"{text}: it must hold card.json and weights.safetensors, or one file of an agent, got {found}")
    return [agents[0], *(name for name in BESIDE if name in files and agents[0].endswith(".zip"))]


def _download(repo: str, name: str, commit: str | None) -> Path:
    from huggingface_hub import hf_hub_download

    got = hf_hub_download(repo, name, revision=commit, endpoint=_endpoint(), cache_dir=_cache())
    return Path(str(got))


def _kept(repo: str, revision: str) -> Path | None:
    """One of our agents in the cache, for when the hub is out of reach."""
    from huggingface_hub import try_to_load_from_cache

    paths = [try_to_load_from_cache(repo, name, cache_dir=_cache(), revision=revision) for name in AGENT_FILES]
    return Path(str(paths[0])).parent if all(isinstance(path, str) for path in paths) else None
