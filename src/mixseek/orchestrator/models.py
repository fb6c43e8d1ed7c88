"""The records of a run."""

from mixseek.records import ExecutionSummary, FailedTeamInfo, OrchestratorTask, RoundResult, TeamStatus

__all__ = ["ExecutionSummary", "FailedTeamInfo", "OrchestratorTask", "RoundResult", "TeamStatus"]
