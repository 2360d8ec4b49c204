"""Each kind of hook: found, missing and changed, in a small release made up here."""

import zipfile

import pytest

from hybrid_spark.vllm_check import Release, ReleaseError
from hybrid_spark.vllm_check.kinds import Attributes, CallOrder, Expression, Name, Parameters, StringConstant

FILES = {
    "__init__.py": "from .version import __version__\n",
    "version.py": "__version__ = 'x'\n",
    "_version.py": "__version__ = version = '9.8.7'\n",
    "v1/__init__.py": "",
    "flags.py": 'def add(parser):\n    parser.add_argument("--enable-x")\n\n\nclass Args:\n    port: int = 1\n',
    "config/__init__.py": "from vllm.config.spec import SpecConfig as Config\n",
    "config/spec.py": "class Base:\n    method: str\n    def use(self): ...\n\nclass SpecConfig(Base):\n    num: int\n",
    "lazy.py": "if TYPE_CHECKING:\n    current: int\ntry:\n    import a\nexcept ImportError:\n    b = None\n",
    "runner.py": """
from .helpers import build, Manager as Imported


class Child(Imported):
    def __init__(self, config, device=None):
        self.config, self.device = config, device

    def step(self, *, drafts, batch=None):
        if drafts:
            self.size(drafts, batch)
        first(1)
        second(first(2))

    def wide(self, a, b, *args, flag: bool = False, **kwargs): ...
""",
    "helpers.py": """
def build(config, device): ...


class Manager:
    limit: int = 1

    def size(self, drafts, batch):
        self.budget = 3
""",
}
OK, MISSING, CHANGED = "ok", "missing", "changed"


@pytest.fixture(params=["folder", "wheel"])
def release(request, tmp_path):
    if request.param == "wheel":
        path = tmp_path / "vllm-9.8.7-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in FILES.items():
                archive.writestr(f"vllm/{name}", text)
    else:
        path = tmp_path
        for name, text in FILES.items():
            (tmp_path / "vllm" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "vllm" / name).write_text(text)
    return Release(path)


def parameters(name, names, match, module="vllm.runner"):
    return Parameters(module=module, name=name, parameters=names, match=match, why="")


@pytest.mark.parametrize(
    ("hook", "status"),
    [
        (Name(module="vllm.config", why=""), OK),
        (Name(module="vllm.config", name="Config", why=""), OK),
        (Name(module="vllm.config", name="spec", why=""), OK),
        (Name(module="vllm", name="__version__", why=""), OK),
        (Name(module="vllm.lazy", name="current", why=""), OK),
        (Name(module="vllm.lazy", name="b", why=""), OK),
        (Name(module="vllm.runner", name="build", why=""), OK),
        (Name(module="vllm.runner", name="Child.size", why=""), OK),
        (Name(module="vllm.config", name="SpecConfig", why=""), MISSING),
        (Name(module="vllm.nothing", name="Config", why=""), MISSING),
        (Name(module="vllm.runner", name="Child.other", why=""), MISSING),
        (parameters("build", ("config", "device"), "exact"), OK),
        (parameters("build", ("device", "config"), "exact"), CHANGED),
        (parameters("build", ("config",), "exact"), CHANGED),
        (parameters("Child.wide", ("a", "b"), "exact"), CHANGED),
        (parameters("Child.wide", ("a", "b"), "prefix"), OK),
        (parameters("Child.wide", ("b",), "prefix"), CHANGED),
        (parameters("Child.wide", ("flag", "a"), "contains"), OK),
        (parameters("Child.wide", ("flags",), "contains"), CHANGED),
        (parameters("Child.__init__", ("config",), "call"), OK),
        (parameters("Child.__init__", ("config", "device"), "call"), OK),
        (parameters("Child.__init__", ("device",), "call"), CHANGED),
        (parameters("Child.__init__", ("config", "dtype"), "call"), CHANGED),
        (parameters("Child.step", ("batch",), "call"), CHANGED),
        (parameters("Child.step", ("drafts",), "call"), OK),
        (parameters("Child", ("drafts",), "call"), CHANGED),
        (parameters("other", (), "exact"), MISSING),
        (
            Attributes(module="vllm.runner", name="Child", attributes=("config", "device", "limit", "budget"), why=""),
            OK,
        ),
        (Attributes(module="vllm.config", name="Config", attributes=("method", "num", "use"), why=""), OK),
        (Attributes(module="vllm.runner", name="Child", attributes=("config", "price"), why=""), CHANGED),
        (Attributes(module="vllm.runner", name="Other", attributes=("config",), why=""), MISSING),
        (CallOrder(module="vllm.runner", name="Child.step", calls=("self.size", "first"), why=""), OK),
        (CallOrder(module="vllm.runner", name="Child.step", calls=("second", "self.size"), why=""), CHANGED),
        (CallOrder(module="vllm.runner", name="Child.step", calls=("self.size", "third"), why=""), MISSING),
        (Expression(module="vllm.runner", name="Child.step", expression="self.size(drafts, batch)", why=""), OK),
        (Expression(module="vllm.runner", name="Child.step", expression="self.size(drafts)", why=""), CHANGED),
        (Expression(module="vllm.runner", name="Child.step", expression="self.grow(drafts)", why=""), MISSING),
        (StringConstant(kind="flag", text="--enable-x", modules=("vllm.flags",), why=""), OK),
        (StringConstant(kind="flag", text="--port", fields=("port",), modules=("vllm.flags",), why=""), MISSING),
        (
            StringConstant(
                kind="flag", text="--port ", modules=(), fields=("port",), field_modules=("vllm.flags",), why=""
            ),
            OK,
        ),
        (StringConstant(kind="flag", text="--no-enable-x", modules=("vllm.flags",), why=""), MISSING),
        (StringConstant(kind="flag", text="enable", part=True, modules=("vllm.flags", "vllm.none"), why=""), OK),
        (StringConstant(kind="flag", text="--enable-x", modules=("vllm.none",), why=""), MISSING),
    ],
    ids=lambda value: value.expected if not isinstance(value, str) else value,
)
def test_hook(release, hook, status):
    finding = hook.look(release)
    assert finding.status == status, finding
    assert bool(finding.found) == (status != OK)


def test_version_is_read(release):
    assert release.version == "9.8.7"


@pytest.mark.parametrize("content", ["nothing", "other package", "no wheel"])
def test_path_without_vllm_is_refused(tmp_path, content):
    path = tmp_path
    if content == "other package":
        (tmp_path / "__init__.py").touch()
    elif content == "no wheel":
        path = tmp_path / "vllm.whl"
        path.write_bytes(b"nothing")
    with pytest.raises(ReleaseError, match=str(path)):
        Release(path)
