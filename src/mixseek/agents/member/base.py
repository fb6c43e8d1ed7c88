"""What a member is: one asynchronous method from a task to a result."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from mixseek.config.schema import MemberAgentConfig
from mixseek.records import MemberAgentResult
from mixseek.templating import JAPANESE, Texts
from mixseek.workspace import Workspace

if TYPE_CHECKING:
    from mixseek.llm import ModelHub

__all__ = ["BaseMemberAgent"]


class BaseMemberAgent(ABC):
    """A member of a team. ``initialize`` is called before the first task of a run, ``cleanup`` after its last."""

    workspace: Workspace | None = None
    """Where it works; the factory says it once the member is made."""
    texts: Texts = JAPANESE
    """What its model is told beside its own instruction, in the language of the run; the factory says it too."""

    def __init__(self, config: MemberAgentConfig) -> None:
        self.config = config

    @property
    def agent_name(self) -> str:
        """The name the team knows it by."""
        return self.config.name

    @property
    def agent_type(self) -> str:
        """Its kind, as the team file says it."""
        return self.config.type

    def check_model(self, hub: "ModelHub") -> None:  # noqa: B027  # as below
        """Raise a ConfigurationError if its model cannot do what its settings ask; nothing was paid for by then."""

    @abstractmethod
    async def execute(self, task: str, context: dict[str, Any] | None = None, **kwargs: Any) -> MemberAgentResult:
        """Do ``task``; ``context`` has ``execution_id``, ``team_id`` and ``round_number``."""

    async def initialize(self) -> None:  # noqa: B027  # optional to override
        """Get ready; a member that holds nothing need not override it."""

    async def cleanup(self) -> None:  # noqa: B027  # as above
        """Let go of what ``initialize`` took."""
