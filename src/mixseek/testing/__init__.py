"""Fakes that ship with MixSeek, for its own tests and for those of its users."""

from mixseek.testing.answers import Answer, AnswerLike, ToolCall
from mixseek.testing.calls import Message, ModelCall, OfferedTool, OutputSchema
from mixseek.testing.schemas import example_value
from mixseek.testing.script import Match, Script, default_answer
from mixseek.testing.server import FAULT_KINDS, Bill, Fault, LoggedRequest, ModelBill, ModelServer, ModelServerProcess

__all__ = [
    "FAULT_KINDS",
    "Answer",
    "AnswerLike",
    "Bill",
    "Fault",
    "LoggedRequest",
    "Match",
    "Message",
    "ModelBill",
    "ModelCall",
    "ModelServer",
    "ModelServerProcess",
    "OfferedTool",
    "OutputSchema",
    "Script",
    "ToolCall",
    "default_answer",
    "example_value",
]
