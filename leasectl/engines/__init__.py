"""Stores that the pool algorithm runs on."""
