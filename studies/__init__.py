"""Drivers of the Monte Carlo studies: they run settings and write records; the library proper never imports them."""
