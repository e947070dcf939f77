"""Drivers of the Monte Carlo studies: they run settings, write records, and are never imported by the library proper."""
