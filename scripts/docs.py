#!/usr/bin/env python3
"""Checks the documentation, or builds it as a book.

    scripts/docs.py --check   links, anchors, table widths and the README's length; needs nothing but Python
    scripts/docs.py           the same, then the book, in book/ of the target folder; installs mdBook beside it

The book holds the pages that docs/SUMMARY.md lists. Pages link to files all over the repository, so the book is built
from a copy with the repository's layout that holds these pages and the files they link to.
"""

import argparse
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
MDBOOK = "0.5.4"

README_WORDS = 900
ROW_WIDTH = 140
NARROW = ["README.md", "docs/figures.md"]

FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+(?:\([^()]*\))?)(?:\s+\"[^\"]*\")?\)")


def read_prose(page: pathlib.Path) -> str:
    """The text of a page without its code, which may look like a link."""
    return CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))


def find_links(page: pathlib.Path) -> list[tuple[str, pathlib.Path, str]]:
    """The relative links of a page: as written, the file, the anchor."""
    found = []
    for link in LINK.findall(read_prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = urllib.parse.unquote(link).partition("#")
        found.append((link, (page.parent / path).resolve() if path else page, anchor))
    return found


def find_anchors(page: pathlib.Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mdBook name them."""
    anchors: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?) *#*$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text.lower()))
        number, name = 0, slug
        while name in anchors:
            number += 1
            name = f"{slug}-{number}"
        anchors.add(name)
    return anchors


def find_chapters() -> list[pathlib.Path]:
    return [path for _, path, _ in find_links(DOCS / "SUMMARY.md")]


def check() -> list[str]:
    """What is wrong with the documentation, a line each."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    pages = [ROOT / name for name in listed.split() if (ROOT / name).exists()]
    chapters = find_chapters()
    faults = []
    for page in pages:
        name = page.relative_to(ROOT)
        for link, path, anchor in find_links(page):
            if not path.exists():
                faults.append(f"{name}: {link}: no such file")
            elif page in chapters and path.is_dir():
                faults.append(f"{name}: {link}: the book has files only; link to one in this folder")
            elif anchor and anchor not in find_anchors(path):
                faults.append(f"{name}: {link}: no such heading")
            elif page in chapters and path.suffix == ".md" and path not in chapters:
                faults.append(f"{name}: {link}: the page is not in docs/SUMMARY.md")
        if page.parent == DOCS and page.name != "SUMMARY.md" and page not in chapters:
            faults.append(f"{name}: not in docs/SUMMARY.md")
    for name in NARROW:
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            if line.startswith("|") and len(line) > ROW_WIDTH:
                faults.append(f"{name}:{number}: a table row of {len(line)} characters, more than {ROW_WIDTH}")
    words = len((ROOT / "README.md").read_text(encoding="utf-8").split())
    if words > README_WORDS:
        faults.append(f"README.md: {words} words, more than {README_WORDS}")
    return faults


def install_mdbook() -> pathlib.Path:
    """The pinned mdBook, built once, without optimisation: a book takes a second either way."""
    folder = TARGET / "mdbook"
    program, stamp = folder / "bin" / "mdbook", folder / "version"
    if not program.exists() or not stamp.exists() or stamp.read_text() != MDBOOK:
        print(f"docs: installing mdBook {MDBOOK}", file=sys.stderr)
        command = ["cargo", "install", "mdbook", "--quiet", "--locked", "--force", "--debug", "--version", MDBOOK]
        command += ["--no-default-features", "--features", "search", "--root", folder, "--target-dir", folder / "build"]
        environment = os.environ | {"CARGO_PROFILE_DEV_DEBUG": "0"}
        subprocess.run(command, check=True, env=environment)
        shutil.rmtree(folder / "build")
        stamp.write_text(MDBOOK)
    return program


def stage(book: pathlib.Path) -> None:
    """Copies chapters and the files they link to, and writes the book's table of contents."""
    source = book / "src"
    if book.exists():
        shutil.rmtree(book)
    wanted = set(find_chapters())
    wanted |= {path for page in wanted for _, path, _ in find_links(page) if path.is_file()}
    for path in wanted:
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    summary = (DOCS / "SUMMARY.md").read_text(encoding="utf-8")
    below_root = lambda link: f"]({os.path.normpath(os.path.join('docs', link[1]))})"
    (source / "SUMMARY.md").write_text(re.sub(r"\]\(([^)]+)\)", below_root, summary), encoding="utf-8")
    shutil.copy(DOCS / "book.toml", book)


class Targets(html.parser.HTMLParser):
    """Collects where the links and images of a page lead."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("href", "src") and value and tag != "base"]


def check_book(folder: pathlib.Path, pages: list[pathlib.Path]) -> list[str]:
    """Links of the built pages that lead nowhere."""
    faults = []
    for page in pages:
        parser = Targets()
        parser.feed(page.read_text(encoding="utf-8"))
        for target in parser.found:
            path = urllib.parse.unquote(target.partition("#")[0])
            if path and not re.match(r"[a-z]+:", path) and not (page.parent / path).exists():
                faults.append(f"{page.relative_to(folder)}: {target}: no such file in the book")
    return faults


def build() -> list[str]:
    """Builds the book; returns what is wrong with it."""
    mdbook = install_mdbook()
    book = TARGET / "book"
    stage(book)
    subprocess.run([mdbook, "build", book], check=True, env=os.environ | {"MDBOOK_LOG": "warn"})
    folder = book / "html"
    pages = [folder / path.relative_to(ROOT).with_suffix(".html") for path in find_chapters()]
    faults = check_book(folder, pages)
    if not faults:
        print(f"docs: {len(pages)} pages, {folder / 'index.html'}")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="check the sources and build nothing")
    arguments = parser.parse_args()
    faults = check() or ([] if arguments.check else build())
    for fault in faults:
        print(f"docs: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
