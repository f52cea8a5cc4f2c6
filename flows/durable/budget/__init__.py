"""What a run may be billed for: the gate before every operation, and how a run ends or pauses at it."""
