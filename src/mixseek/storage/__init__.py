"""What a run came to, on disk. The store is in ``mixseek.storage.aggregation_store``; this root loads no DuckDB."""

__all__: list[str] = []
