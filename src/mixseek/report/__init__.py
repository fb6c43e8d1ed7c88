"""One execution as it is told afterwards: as a page, as Markdown, as JSON or as tables."""
