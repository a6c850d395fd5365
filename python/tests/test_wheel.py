"""What the wheel holds: the package, its licences, and no code under the GPL."""

import importlib.metadata
import json

import pytest


@pytest.fixture(scope="module")
def wheel():
    try:
        return importlib.metadata.distribution("tenfold")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("tenfold is not installed from a wheel here")


def names(wheel):
    return {str(path) for path in wheel.files}


def test_files(wheel):
    held = names(wheel)
    assert {"tenfold/py.typed", "tenfold/_native.pyi", "tenfold/_native.abi3.so"} <= held
    # Libraries of the system that the module linked would lie in a folder of their own.
    for name in held:
        assert name.startswith(("tenfold/", "tenfold-")) or name.endswith("bin/tenfold"), name


def test_metadata(wheel):
    assert wheel.metadata["License-Expression"] == "MIT OR Apache-2.0"
    assert sum("licenses/LICENSE" in name for name in names(wheel)) == 2
    scripts = wheel.entry_points.select(group="console_scripts")
    assert [(script.name, script.value) for script in scripts] == [("tenfold", "tenfold.__main__:main")]
    needed = [line for line in wheel.requires if "extra ==" not in line]
    assert len(needed) == 1 and needed[0].startswith("numpy")


def test_nothing_needs_the_gpl(wheel):
    (bill,) = [path for path in wheel.files if str(path).endswith(".cyclonedx.json")]
    parts = json.loads(bill.read_text())["components"]
    assert len(parts) > 50 and not [part["name"] for part in parts if "ffmpeg" in part["name"]]
    for part in parts:
        for licence in part.get("licenses", []):
            terms = licence["expression"].replace("(", "").replace(")", "")
            assert any("GPL" not in choice for choice in terms.split(" OR ")), (part["name"], terms)
