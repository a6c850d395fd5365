"""Training with compressed exchanges, workers side by side in one process: what a rank would send goes through its coder."""
