"""Copula multitask learning for paired-eye images: the library behind the CeViT compendium."""

__version__ = "0.2.0"
