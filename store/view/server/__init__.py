"""The page served on this machine, live while an experiment is recorded, with control of a replay."""
