"""The console script: ``wanamaker report RUN`` renders a run's report again from its report.json."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from harness.errors import WanamakerError
from harness.reporting import markdown, schema


def _version() -> str:
    try:
        return version("wanamaker")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "(not installed)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wanamaker",
        description="Reports of replication runs. The runs themselves are started with `pytest claims/`.",
    )
    parser.add_argument("--version", action="version", version=f"wanamaker {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    report = commands.add_parser(
        "report",
        help="render a run's report again from its report.json",
        description="Read RUN/report.json and write RUN/report.md beside it. Nothing is measured again.",
    )
    report.add_argument("run", type=Path, metavar="RUN", help="a run's folder, or its report.json")
    report.add_argument("--format", choices=["md"], default="md", help="what to render (default: md, Markdown)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; exit code 0, or 2 with one line on standard error."""
    arguments = _parser().parse_args(argv)
    try:
        source = schema.locate(arguments.run)
        target = source.with_name(markdown.FILE_NAME)
        schema.write_text(markdown.render(schema.load(source)), target)
    except WanamakerError as error:
        print(f"wanamaker: {error}", file=sys.stderr)
        return 2
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
