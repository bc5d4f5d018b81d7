"""`pairtrial score`, `report`, `publish` and `verify`: from receipts only, offline."""

from __future__ import annotations

from pathlib import Path

import click

from pairtrial.cli.paths import RUNS, TARGET, open_run, shown
from pairtrial.core.disk import write_atomic
from pairtrial.core.errors import ExitCode, PairtrialError, ReceiptError
from pairtrial.core.status import Status
from pairtrial.prereg.wording import ClaimKind
from pairtrial.report import Scorecard, journal_facts
from pairtrial.report import score as compute
from pairtrial.report.markdown import render
from pairtrial.report.readme import insert
from pairtrial.report.scorecard import SCORECARD_FILE
from pairtrial.report.terminal import summary
from pairtrial.runs.journal import parse_journal
from pairtrial.runs.receipt import Receipt
from pairtrial.runs.store import JOURNAL, RunReader
from pairtrial.runs.verify import verify_run

REPORT_FILE = "report.md"


def scorecard(reader: RunReader) -> Scorecard:
    """Compute the scorecard of a run folder."""
    journal = reader.folder / JOURNAL
    lines, _ = parse_journal(journal.read_bytes() if journal.exists() else b"", JOURNAL)
    return compute(reader.lock, (receipt for _, receipt in reader.attempts()), journal_facts(lines))


def source(reader: RunReader) -> str:
    """How a report names its run: ``runs/NAME/PLANID12``, the same from wherever it is made."""
    return "/".join(reader.folder.resolve().parts[-3:])


@click.command()
@click.argument("target", type=TARGET)
@click.option("--runs", type=RUNS, help="Where runs lie; default: runs/ beside the plan's folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the scorecard instead of prose.")
@click.option(
    "--check", "only_check", is_flag=True, help="Write nothing; exit 1 when the scorecard there is not the same bytes."
)
@click.option("--gate", is_flag=True, help="Exit 3 unless every claim is a shown difference or equivalence.")
def score(target: Path, runs: Path | None, as_json: bool, only_check: bool, gate: bool) -> int:
    """Compute the scorecard of TARGET (a plan or a run folder) and write it into the run folder.

    \b
    Example:
      pairtrial score prereg/demo.yaml
      pairtrial score runs/bm25-search/0123456789ab --check
    """
    reader = open_run(target, runs)
    card = scorecard(reader)
    path = reader.folder / SCORECARD_FILE
    if only_check:
        if not path.is_file() or path.read_bytes() != card.to_bytes():
            raise ReceiptError(f"{shown(path)}: is not what the receipts give", hint="pairtrial score", slug="stale")
    else:
        write_atomic(path, card.to_bytes())
    click.echo(card.to_bytes().decode(), nl=False) if as_json else click.echo(summary(card, source(reader)))
    shown_kinds = {ClaimKind.DIFFERENCE, ClaimKind.SMALL_DIFFERENCE, ClaimKind.EQUIVALENT}
    if gate and not all(claim.kind in shown_kinds for claim in card.claims):
        return ExitCode.INCONCLUSIVE
    return ExitCode.OK


@click.command()
@click.argument("target", type=TARGET)
@click.option("--runs", type=RUNS, help="Where runs lie; default: runs/ beside the plan's folder.")
def report(target: Path, runs: Path | None) -> int:
    """Score TARGET, write scorecard.json and report.md into its run folder, and print the result.

    \b
    Example:
      pairtrial report prereg/demo.yaml
    """
    reader = open_run(target, runs)
    card = scorecard(reader)
    write_atomic(reader.folder / SCORECARD_FILE, card.to_bytes())
    write_atomic(reader.folder / REPORT_FILE, render(card, source(reader)).encode())
    click.echo(summary(card, source(reader)))
    click.echo(f"report: {shown(reader.folder / REPORT_FILE)}")
    return ExitCode.OK


@click.command()
@click.argument("target", type=TARGET)
@click.option("--readme", type=click.Path(path_type=Path, dir_okay=False), default=Path("README.md"), show_default=True)
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 when the block is stale.")
@click.option("--runs", type=RUNS, help="Where runs lie; default: runs/ beside the plan's folder.")
def publish(target: Path, readme: Path, only_check: bool, runs: Path | None) -> int:
    """Put the result of TARGET into a README between its markers, with the plan id that it came from.

    \b
    Example:
      pairtrial publish runs/bm25-search/0123456789ab --readme README.md --check
    """
    reader = open_run(target, runs)
    card = scorecard(reader)
    try:
        before = readme.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise ReceiptError(f"{readme}: cannot be read ({fault})", slug="unreadable-file") from None
    after = insert(before, card, source(reader), readme.name)
    if only_check and before != after:
        raise ReceiptError(
            f"{readme}: the block of plan {card.plan!r} is not what {source(reader)} gives",
            hint=f"pairtrial publish {target} --readme {readme}",
            slug="stale-readme",
        )
    if before != after:
        write_atomic(readme, after.encode())
    verb = "is current" if before == after else "written"
    click.echo(f"{readme}: block of {card.plan} {verb}, from {source(reader)}")
    return ExitCode.OK


@click.command()
@click.argument("target", type=TARGET)
@click.option("--runs", type=RUNS, help="Where runs lie; default: runs/ beside the plan's folder.")
@click.option(
    "--pack", type=click.Path(path_type=Path, file_okay=False), help="Task pack to grade the reports against."
)
def verify(target: Path, runs: Path | None, pack: Path | None) -> int:
    """Recompute the run of TARGET: lock, schedule, journal, receipts, files, grades, scorecard. Names what was changed.

    \b
    Example:
      pairtrial verify runs/bm25-search/0123456789ab --pack tasks/core
    """
    reader = open_run(target, runs)
    found = verify_run(reader.folder, _regrader(reader, pack))
    if not found.problems:
        stored = reader.folder / SCORECARD_FILE
        if stored.is_file() and stored.read_bytes() != scorecard(reader).to_bytes():
            found.problems.append(f"{SCORECARD_FILE}: is not what the receipts give")
    for problem in found.problems:
        click.echo(f"wrong: {problem}", err=True)
    why = "name their pack with --pack" if pack is None else "their tasks are not as they were frozen"
    left = f" ({found.not_regraded} not: {why})" if found.not_regraded else ""
    click.echo(
        f"{source(reader)}: {found.receipts} receipts, {found.regraded} grades recomputed from their test reports{left}, "
        f"{len(found.problems)} problem(s)"
    )
    return ExitCode.REFUSED if found.problems else ExitCode.OK


def _regrader(reader: RunReader, pack: Path | None):  # type: ignore[no-untyped-def]
    from pairtrial.grading import grade_from_report
    from pairtrial.tasks import load_pack

    tasks = {}
    if pack is not None:
        identities = reader.lock.identities
        tasks = {t.id: t for t in load_pack(pack).tasks if identities.get(f"task.{t.id}.definition") == t.digest}

    def regrade(receipt: Receipt, raw: bytes) -> Status | None:
        task = tasks.get(receipt.cell.task)
        if task is None:
            return None
        try:
            status: Status = grade_from_report(raw, task).status
        except PairtrialError:
            return Status.GRADING_ERROR
        return status

    return regrade
