"""What an analyst asks."""
