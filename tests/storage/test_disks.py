"""A few of the faults that ``python -m soak.disks`` lets each write of a competition meet."""

import pytest

from soak.disks import compiler_is_missing, run_preloaded


def test_full_read_only_and_broken_disks_lose_nothing_and_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert compiler_is_missing() is None
    # Teams share commits when they come to them together, so only numbers that the fewest commits reach are sure.
    faults = [
        "no space, pwrite /journal.db-wal, 150",
        "read-only, pwrite /.journal.db.*, 70",
        "read-only, fdatasync /mixseek.db.wal, 4",
        "broken from, fdatasync /journal.db-wal, 20",
        "no space, ftruncate /mixseek.db.lock, 1",
        "read-only, fdatasync /mixseek.db.wal, 7",
        "read-only, fdatasync /mixseek.db, 2",
        "read-only, reopen /journal.db, 1",
        "read-only from, pwrite /journal.db-wal, 7",
        "no space, link /journal.db, 1",
    ]
    code = run_preloaded(["--at-once", "2", "--fault", *faults])
    assert code == 0, capfd.readouterr().out
    told = capfd.readouterr().out
    assert "commands on a read-only disk, 0 losses" in told
    assert "10 faults, 0 of them at writes that these runs did not come to" in told
