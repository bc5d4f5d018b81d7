"""Programs that run beside the code under test: standard library only, sent through a pipe, never written to disk."""
