"""Configuration: what may be set is in ``schema``, how it is read and merged in ``manager``."""

__all__: list[str] = []
