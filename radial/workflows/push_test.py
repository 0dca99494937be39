"""Agents on the hub: the real client against a hub of our own, on this machine; what it stores is what it hands out."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

import radial as rr
from radial import cli
from radial.agents import hub
from radial.agents.policies import CategoricalAgent
from radial.core.agent import Card
from radial.core.data import BadInput, EnvSpec
from radial.workflows.audit.subject import audited
from radial.workflows.push import push

pytest.importorskip("huggingface_hub", reason="talks to a hub by huggingface_hub, which is not installed")


class FakeHub(BaseHTTPRequestHandler):
    """The few answers of the hub that uploading and downloading need. Each commit is a whole set of files."""

    commits: dict[str, dict[str, dict[str, bytes]]]  # repository → commit → files
    asked: list[str]

    def log_message(self, *args: object) -> None:
        pass

    def answer(self, body: object, code: int = 200, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def home(self) -> str:
        return f"http://{self.headers['Host']}"

    def version(self, repo: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        known = self.commits.get(repo)
        if known is None:
            return self.answer({"error": "no"}, 404, X_Error_Code="RepoNotFound")  # type: ignore[func-returns-value]
        commit = list(known)[-1] if revision == "main" and known else revision
        if commit not in known:
            return self.answer({"error": "no"}, 404, X_Error_Code="RevisionNotFound")  # type: ignore[func-returns-value]
        return commit, known[commit]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+?)(?:/revision/([^?]+))?(?:\?.*)?", self.path):
            version = self.version(found[1], found[2] or "main")
            if version is not None:
                files = [{"rfilename": name, "size": len(data)} for name, data in version[1].items()]
                self.answer({"id": found[1], "sha": version[0], "siblings": files, "tags": [], "private": False})
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path):
            version = self.version(found[1], found[2])
            if version is not None:
                data = version[1][found[3]]
                self.answer(data, X_Repo_Commit=version[0], ETag=f'"{hashlib.sha1(data).hexdigest()}"')
        else:
            self.answer({"error": self.path}, 404)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.asked.append(self.path)
        if self.headers["Authorization"] != "Bearer hf_right":
            self.answer({"error": "Invalid credentials"}, 401)
        elif self.path == "/api/repos/create":
            told = json.loads(body)
            repo = f"{told.get('organization') or 'me'}/{told['name']}"
            self.commits.setdefault(repo, {})
            self.answer({"url": f"{self.home()}/{repo}", "name": repo})
        elif self.path.startswith("/api/validate-yaml"):
            self.answer({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            self.answer({"files": files})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main.*", self.path):
            lines = [json.loads(line) for line in body.splitlines()]
            files = {
                line["value"]["path"]: base64.b64decode(line["value"]["content"])
                for line in lines
                if line["key"] == "file"
            }
            commit = hashlib.sha1(body).hexdigest()
            before = list(self.commits[found[1]].values())[-1] if self.commits[found[1]] else {}
            self.commits[found[1]][commit] = before | files
            self.answer(
                {"commitOid": commit, "commitUrl": f"{self.home()}/{found[1]}/commit/{commit}", "success": True}
            )
        else:
            self.answer({"error": self.path}, 404)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeHub]]:
    handler = type("Hub", (FakeHub,), {"commits": {}, "asked": []})
    running = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{running.server_port}")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield handler
    running.shutdown()
    running.server_close()


def pole() -> CategoricalAgent:
    agent = CategoricalAgent((4,), 2, (8,))
    agent.initialize(torch.Generator().manual_seed(0))
    agent.card = Card(
        EnvSpec("classic", "CartPole-v1"), {"name": "some | recipe"}, 3, 99, results={"nominal": {"mean": 9.5}}
    )
    return agent


def test_pushed_and_loaded(server: type[FakeHub], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = rr.save(pole(), tmp_path / "pole")
    cli.main(["push", str(folder), "me/pole", "--json"])
    told = json.loads(capsys.readouterr().out)
    (commit,) = server.commits["me/pole"]
    assert told["commit"] == commit
    assert told["address"] == f"hf://me/pole@{commit}"
    files = server.commits["me/pole"][commit]
    assert files.keys() == {"card.json", "weights.safetensors", "README.md"}
    page = files["README.md"].decode()
    assert 'rr.load("hf://me/pole")' in page
    assert "| nominal | 9.5 |" in page
    files["evil.pkl"] = b"not asked for"
    server.asked.clear()
    agent = rr.load("hf://me/pole")
    x = torch.randn(5, 4)
    assert torch.equal(agent.scores(x), pole().scores(x))
    assert agent.card.source == f"hf://me/pole@{commit}"
    assert agent.card.env == EnvSpec("classic", "CartPole-v1")
    assert not [path for path in server.asked if "evil" in path or "README" in path]
    assert audited("hf://me/pole", None).about.endswith(f"hf://me/pole@{commit}")


def test_a_revision_is_pinned(server: type[FakeHub]) -> None:
    first = push(pole(), "me/pole")
    other = pole()
    with torch.no_grad():
        other.network[0].weight.zero_()
    push(other, "hf://me/pole", message="another")
    assert len(server.commits["me/pole"]) == 2
    x = torch.randn(5, 4)
    assert torch.equal(rr.load(first["address"]).scores(x), pole().scores(x))
    assert torch.equal(rr.load("hf://me/pole").scores(x), other.scores(x))


def test_what_is_in_the_cache_needs_no_hub(server: type[FakeHub], monkeypatch: pytest.MonkeyPatch) -> None:
    told = push(pole(), "me/pole")
    rr.load(told["address"])
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens
    assert rr.load(told["address"]).card.source == told["address"]
    with pytest.raises(ConnectionError, match="hf://me/other: the hub cannot be reached"):
        rr.load("hf://me/other")


def test_files_of_other_libraries_and_what_lies_beside(server: type[FakeHub], tmp_path: Path) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu").save(tmp_path / "ppo-CartPole-v1.zip")
    files = {"ppo-CartPole-v1.zip": (tmp_path / "ppo-CartPole-v1.zip").read_bytes(), "train_eval_metrics.zip": b"PK",
             "README.md": b"", "ppo-CartPole-v1/policy.pth": b"", "replay.mp4": b""}  # fmt: skip
    server.commits["sb3/ppo-CartPole-v1"] = {"a" * 40: files}
    agent = rr.load("hf://sb3/ppo-CartPole-v1")
    assert agent.card.env == EnvSpec("classic", "CartPole-v1")
    assert agent.card.source is not None
    assert agent.card.source.startswith(f"hf://sb3/ppo-CartPole-v1@{'a' * 40} ppo-CartPole-v1.zip sha256:")


def test_hostile_repositories(server: type[FakeHub], monkeypatch: pytest.MonkeyPatch) -> None:
    server.commits["e/two"] = {"b" * 40: {"a.zip": b"", "b.zip": b""}}
    server.commits["e/none"] = {"b" * 40: {"../../a.zip": b"", "x/a.pt": b""}}
    server.commits["e/pickle"] = {"b" * 40: {"a.pt": b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR."}}
    server.commits["e/large"] = {"b" * 40: {"a.pt": b"1234"}}
    monkeypatch.setattr(hub, "LARGEST", 100)
    for name, says in {"two": "got a.zip, b.zip", "none": "got none", "pickle": "it speaks of 'os.system'"}.items():
        with pytest.raises(BadInput, match=says):
            rr.load(f"hf://e/{name}")
    monkeypatch.setattr(hub, "LARGEST", 3)
    with pytest.raises(BadInput, match="at most 3 are downloaded"):
        rr.load("hf://e/large")


@pytest.mark.parametrize(
    "text", ["hf://", "hf://a", "hf://a/b/c", "hf://../b", "hf://a/b@", "hf://a/b@-x", "hf://a b/c"]
)
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(BadInput, match="must be hf://user/repo"):
        rr.load(text)


def test_bad_news_in_one_line(
    server: type[FakeHub], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.commits["me/pole"] = {"c" * 40: {}}
    for text, says in (("hf://me/nothing", "no such repository"), (f"hf://me/pole@{'d' * 40}", "no such revision")):
        with pytest.raises(SystemExit) as end:
            cli.main(["evaluate", text])
        assert end.value.code == 2
        said = capsys.readouterr().err.strip()
        assert says in said
        assert "\n" not in said
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(BadInput, match="HF_TOKEN"):
        push(pole(), "me/pole")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(BadInput, match="pushing needs a token"):
        push(pole(), "me/pole")
    monkeypatch.setattr(hub, "find_spec", lambda name: None)
    for act in (lambda: rr.load("hf://me/pole"), lambda: push(pole(), "me/pole")):
        with pytest.raises(BadInput, match=r"pip install 'radial-rl\[hub\]'"):
            act()
