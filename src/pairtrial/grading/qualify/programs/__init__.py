"""Programs that run inside the sandbox of a qualification: sent as text, standard library only."""
