"""The page that shows an experiment: as one file (`report`), and served locally (`server`)."""
