"""Configuration: what may be set is in ``schema``, how it is read and merged in ``manager``."""

from mixseek.config.manager import ConfigurationManager

__all__ = ["ConfigurationManager"]
