"""The clock a prompt shows: the present moment in the time zone that ``TZ`` names, UTC when it names none."""

import os
from collections.abc import Mapping
from datetime import datetime
from zoneinfo import ZoneInfo

__all__ = ["current_datetime", "timezone_from_environment"]


def timezone_from_environment(environ: Mapping[str, str] = os.environ) -> ZoneInfo:
    """The zone of ``TZ``; an empty value is an unset one, a wrong one is a ``ValueError``."""
    name = environ.get("TZ") or "UTC"
    try:
        return ZoneInfo(name)
    # A name that is a directory of the zone database ("Asia") or not a file name at all is wrong in just the same way.
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"Invalid timezone in TZ environment variable: {name}. "
            "Valid examples: 'UTC', 'Asia/Tokyo', 'America/New_York'"
        ) from error


def current_datetime() -> str:
    """The present moment in ISO 8601, with microseconds and the offset of ``TZ``."""
    return datetime.now(timezone_from_environment()).isoformat(timespec="microseconds")
