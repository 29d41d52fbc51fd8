"""Adapters of other systems to this Messager, a module for each. None is imported unless it is used."""
