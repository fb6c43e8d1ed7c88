"""Fakes that ship with MixSeek, for its own tests and for those of its users."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mixseek.testing.answers import Answer, AnswerLike, ToolCall
from mixseek.testing.calls import Message, ModelCall, OfferedTool, OutputSchema
from mixseek.testing.obeying import ObeyingModel
from mixseek.testing.schemas import example_value
from mixseek.testing.script import Match, Script, default_answer
from mixseek.testing.server import FAULT_KINDS, Bill, Fault, LoggedRequest, ModelBill, ModelServer, ModelServerProcess

if TYPE_CHECKING:
    from mixseek.testing.clock import FakeClock
    from mixseek.testing.scripted_models import SCRIPTED, scripted
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

_LATER = {
    "FakeClock": "clock",
    "SCRIPTED": "scripted_models",
    "scripted": "scripted_models",
    "temporary_workspace": "workspaces",
    "tiny_team": "workspaces",
    "write_workspace": "workspaces",
}


def __getattr__(name: str) -> Any:
    # Looked up when first used: a server in a process of its own needs no model library, which takes seconds.
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"mixseek.testing.{_LATER[name]}"), name)
