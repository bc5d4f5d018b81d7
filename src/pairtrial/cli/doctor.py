"""``pairtrial doctor``: what this machine can do, on one screen."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict

import click

TOOLS = {
    "git": "install git",
    "node": "only for targets in JavaScript, and for agents from npm",
    "npm": "only for targets in JavaScript, and for agents from npm",
    "go": "only for targets in Go",
    "cargo": "only for targets in Rust",
}
KEYS = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY", "CODEX_API_KEY",
    "GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENROUTER_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY", "XAI_API_KEY",
    "DEEPSEEK_API_KEY", "AWS_ACCESS_KEY_ID", "AZURE_OPENAI_API_KEY", "GITHUB_TOKEN",
)  # fmt: skip


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Records on stdout instead of the screen.")
def doctor(as_json: bool) -> None:
    """Say what this machine can do, and what to install.

    Every kind of sandbox is tried by running a command in it. Keys are named when they are set; their values are
    never read into anything.
    """
    from pairtrial.grading.qualify.conditions import clock_library
    from pairtrial.sandbox.survey import Finding, survey

    findings = survey()
    for name, fix in TOOLS.items():
        found = shutil.which(name)
        findings.append(Finding(name, found is not None, found or "not found", "" if found else fix))
    clock = clock_library()
    fix = "" if clock else "only to qualify tasks under another clock (Debian: faketime)"
    findings.append(Finding("libfaketime", clock is not None, clock or "not found", fix))
    here, absent = agents_here()
    keys = [name for name in KEYS if os.environ.get(name)]
    if as_json:
        record = {"findings": [asdict(item) for item in findings], "agents": ["tinker", *here], "keys": keys}
        click.echo(json.dumps(record, sort_keys=True))
        return
    width = max(len(item.name) for item in findings)
    for item in findings:
        click.echo(f"{'ok ' if item.ok else 'no '} {item.name:<{width}}  {item.detail}")
        if item.fix:
            click.echo(f"    {'':<{width}}  → {item.fix}")
    click.echo(f"    {'agents':<{width}}  tinker (embedded){''.join(', ' + name for name in here)}")
    if absent:
        click.echo(f"    {'':<{width}}  → bash harness/install-agents.sh {' '.join(absent)}")
    click.echo(f"    {'keys':<{width}}  {', '.join(keys) if keys else 'none set'} (names only; values are never shown)")


def agents_here() -> tuple[list[str], list[str]]:
    """``name@version`` of the agents that `harness/install-agents.sh` put here, and of those that it could."""
    from pairtrial.harness.agents.install import manifests
    from pairtrial.harness.agents.programs import install_folder

    here: list[str] = []
    absent: list[str] = []
    for name, manifest in sorted(manifests().items()):
        for version, source in manifest.programs.items():
            there = (install_folder(manifest, version) / source.path).exists()
            (here if there else absent).append(f"{name}@{version}")
    return here, absent
