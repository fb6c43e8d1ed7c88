"""The only place that knows model providers: ``"provider:name"`` to a model, its calls bounded, retried and counted."""

from mixseek.llm.asking import ask, ask_for_text, described, message, takes_temperature
from mixseek.llm.attached import attached, attached_text
from mixseek.llm.backoff import Backoff
from mixseek.llm.calls import (
    CallJournal,
    FinishedCall,
    FinishedToolUse,
    Meter,
    OnTheirWay,
    Scope,
    ToolUse,
    calling,
    current_meter,
    current_scope,
)
from mixseek.llm.convert import messages_from_json, messages_to_json, model_settings, usage_record
from mixseek.llm.factories import Connection
from mixseek.llm.hub import ModelHub, create_authenticated_model, current_hub
from mixseek.llm.patience import PatientTimeout
from mixseek.llm.tracing import CallTracing, trace_calls

__all__ = [
    "Backoff",
    "CallJournal",
    "CallTracing",
    "Connection",
    "FinishedCall",
    "FinishedToolUse",
    "Meter",
    "ModelHub",
    "OnTheirWay",
    "PatientTimeout",
    "Scope",
    "ToolUse",
    "ask",
    "ask_for_text",
    "attached",
    "attached_text",
    "calling",
    "create_authenticated_model",
    "current_hub",
    "current_meter",
    "current_scope",
    "described",
    "message",
    "messages_from_json",
    "messages_to_json",
    "model_settings",
    "takes_temperature",
    "trace_calls",
    "usage_record",
]
