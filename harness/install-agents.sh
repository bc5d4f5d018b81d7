#!/usr/bin/env bash
# Install agents into the cache folder by name and pinned version; without arguments all of them.
#   bash harness/install-agents.sh                    # every agent that the manifests know
#   bash harness/install-agents.sh claude-code@2.1.332
# Needs npm for agents that come from the npm registry. What does not have the digest in its manifest is refused.
# A download that hangs is ended after 300 seconds and tried three times; then the command says which registry it was.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
[ -x "$python" ] || python=python3
exec "$python" -m pairtrial.harness.agents.install "$@"
