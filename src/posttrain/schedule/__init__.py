"""What next: mixtures over domains and slots with bounded staleness."""
