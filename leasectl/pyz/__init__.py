"""What only ``leasectl.pyz`` needs: leasectl and all it depends on, in one file."""
