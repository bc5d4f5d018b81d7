"""tinker: the embedded repair agent, a program of its own that no other part imports.

It searches for a one-edit repair of the fault that a prompt describes: no language model, no network, no key. How it
works is written down in ``docs/agent-stream.md``; start it with ``python -m pairtrial.harness.tinker``.
"""

NAME = "tinker"
VERSION = "1.0.0"
MODELS = ("tinker-1",)
"""``tinker-1`` names the operators, priors, weights and temperature of this version."""
TOOLS = ("edit", "run")
