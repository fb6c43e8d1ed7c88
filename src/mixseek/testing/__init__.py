"""Fakes that ship with MixSeek, for its own tests and for those of its users."""

from mixseek.testing.answers import Answer, AnswerLike, ToolCall
from mixseek.testing.calls import Message, ModelCall, OfferedTool, OutputSchema
from mixseek.testing.clock import FakeClock
from mixseek.testing.obeying import ObeyingModel
from mixseek.testing.schemas import example_value
from mixseek.testing.script import Match, Script, default_answer
from mixseek.testing.scripted import SCRIPTED, scripted
from mixseek.testing.server import FAULT_KINDS, Bill, Fault, LoggedRequest, ModelBill, ModelServer, ModelServerProcess
from mixseek.testing.workspaces import temporary_workspace, tiny_team, write_workspace

__all__ = [
    "FAULT_KINDS",
    "SCRIPTED",
    "Answer",
    "AnswerLike",
    "Bill",
    "FakeClock",
    "Fault",
    "LoggedRequest",
    "Match",
    "Message",
    "ModelBill",
    "ModelCall",
    "ModelServer",
    "ModelServerProcess",
    "ObeyingModel",
    "OfferedTool",
    "OutputSchema",
    "Script",
    "ToolCall",
    "default_answer",
    "example_value",
    "scripted",
    "temporary_workspace",
    "tiny_team",
    "write_workspace",
]
