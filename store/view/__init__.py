"""The page that shows an experiment: as one file (`report`), and served locally (`server`).

An outer package. Without it, `messager report` and `messager view` go.
"""
