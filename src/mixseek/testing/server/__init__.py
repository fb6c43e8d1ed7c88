"""The loopback model server; ``python -m mixseek.testing.server`` runs it as a process of its own."""

from mixseek.testing.server.bill import Bill, LoggedRequest, ModelBill
from mixseek.testing.server.faults import FAULT_KINDS, Fault
from mixseek.testing.server.model_server import ModelServer
from mixseek.testing.server.process import ModelServerProcess

__all__ = ["FAULT_KINDS", "Bill", "Fault", "LoggedRequest", "ModelBill", "ModelServer", "ModelServerProcess"]
