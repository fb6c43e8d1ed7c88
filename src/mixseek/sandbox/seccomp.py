"""A filter for system calls that no computing program needs, as the kernel reads it.

It closes ways around the limits (memory that belongs to no process, name spaces of one's own with file systems of any
size) and parts of the kernel that have nothing to do with running a program.
"""

import errno
import platform
import struct

__all__ = ["system_call_filter"]

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _FOURTH_ARGUMENT = 0, 4, 16, 40
_X32 = 0x40000000
_CLONE_NEWUSER = 0x10000000
_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_MMAP = {"x86_64": 9, "aarch64": 222}
# Its flags are in memory, which a filter cannot read; without it programs fall back on clone.
_CLONE3 = 435
_REFUSED = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
}


def system_call_filter(machine: str | None = None) -> bytes | None:
    """The program for this machine; None for one whose calls have other numbers."""
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        return None
    column = list(_ARCHITECTURES).index(machine)
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _REFUSE | errno.EPERM),
        (_LOAD, 0, 0, _NUMBER),
        *_refuse(_AT_LEAST, _X32, errno.ENOSYS),
        *_refuse(_EQUAL, _CLONE3, errno.ENOSYS),
    ]
    for numbers in _REFUSED.values():
        steps += _refuse(_EQUAL, numbers[column], errno.EPERM)
    steps += [
        # Shared memory without a file stays whole while one page of it is mapped, and nobody sees how large it is.
        (_EQUAL, 0, 5, _MMAP[machine]),
        (_LOAD, 0, 0, _FOURTH_ARGUMENT),
        (_ANY_BIT, 0, 2, _MAP_ANONYMOUS),
        *_refuse(_ANY_BIT, _MAP_SHARED, errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 3, _CLONE[machine]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        *_refuse(_ANY_BIT, _CLONE_NEWUSER, errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _refuse(test: int, value: int, error: int) -> list[tuple[int, int, int, int]]:
    """Where the test holds, the call fails with ``error``; otherwise the next step follows."""
    return [(test, 0, 1, value), (_RETURN, 0, 0, _REFUSE | error)]
