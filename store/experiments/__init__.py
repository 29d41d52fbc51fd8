"""Experiments and their recorders: rows, lookup, lifecycle, provenance. Events are in `messager_store.log`."""
