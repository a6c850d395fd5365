"""Stubs say what the module has; examples run."""

import ast
import doctest
import importlib
import inspect
import pathlib
import pkgutil

import pytest

import tenfold
from tenfold import _native

PACKAGE = pathlib.Path(tenfold.__file__).parent


def public(names):
    return {name for name in names if not name.startswith("_")}


def stubs():
    return ast.parse((PACKAGE / "_native.pyi").read_text()).body


def test_every_native_name_has_a_stub():
    assert (PACKAGE / "py.typed").exists()
    listed = set()
    for node in stubs():
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            listed.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            listed.add(node.target.id)
    assert public(listed) == public(dir(_native))


@pytest.mark.parametrize("node", [n for n in stubs() if isinstance(n, ast.ClassDef)], ids=lambda n: n.name)
def test_every_member_has_a_stub(node):
    members = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    assert public(members) == public(dir(getattr(_native, node.name)))


@pytest.mark.parametrize("node", [n for n in stubs() if isinstance(n, ast.FunctionDef)], ids=lambda n: n.name)
def test_signatures_agree(node):
    names = [arg.arg for arg in node.args.args]
    assert names == list(inspect.signature(getattr(_native, node.name)).parameters)


def test_everything_public_is_documented():
    for name in tenfold.__all__:
        thing = getattr(tenfold, name)
        if callable(thing):
            assert thing.__doc__, name
    for kind in [tenfold.Model, tenfold.Codec, tenfold.BlobInfo, tenfold.TensorInfo, tenfold.Report]:
        for name in public(vars(kind)):
            assert getattr(kind, name).__doc__, f"{kind.__name__}.{name}"


# Packages in the package are integrations, with requirements and tests of their own; so is the module for Ray.
MODULES = {m.name for m in pkgutil.iter_modules(tenfold.__path__) if not m.ispkg} - {"__main__", "_native", "ray"}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, _ = doctest.testmod(importlib.import_module(f"tenfold.{name}"))
    assert failed == 0


def test_examples_of_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testmod(tenfold)
    assert failed == 0 and tried > 0


def test_engines_say_what_they_can_do() -> None:
    cpu, cuda = tenfold.capabilities(), tenfold.capabilities("cuda")
    assert (cpu.encodes, cpu.goals, cpu.undoes) == (cuda.encodes, cuda.goals, cuda.undoes)
    queued = tenfold.capabilities("cuda", waits=False)
    assert set(queued.decodes) == {"lossy", "lossless"} and set(queued.undoes) < set(cuda.undoes)
    assert "bits" in cpu.goals and "bfloat16" in cpu.dtypes and "Hadamard" in cpu.does and "layered" in repr(cpu)
    with pytest.raises(tenfold.ArgumentError, match='"cpu" or "cuda"'):
        tenfold.capabilities("tpu")
