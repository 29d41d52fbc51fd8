"""Audit of deliveries: sendings, their receptions, and the listeners that should have received them."""
