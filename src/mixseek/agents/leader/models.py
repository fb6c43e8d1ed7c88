"""What a leader keeps of its members' work."""

from mixseek.records import MemberSubmission, MemberSubmissionsRecord

__all__ = ["MemberSubmission", "MemberSubmissionsRecord"]
