"""All tables, so that importing this package fills the metadata."""
# ruff: noqa: F401 - other packages import them from here

from app.models.agents import Agent, AgentVersion, CriteriaSet, Entity, EntityResponse, EntityType, Task, TaskTick
from app.models.feedback import (
    Feedback,
    FeedbackComment,
    FeedbackDaily,
    ServedPrompt,
    SharedContext,
    SharedContextEmbedding,
    SharedContextFeedback,
    SharedContextHistory,
    SharedContextUsage,
)
from app.models.people import (
    ApiKey,
    AuditEntry,
    IdempotencyKey,
    LoginSession,
    Membership,
    OneTimeLink,
    Purge,
    SavedView,
    SignInAttempt,
    Tenant,
    User,
    UserMemory,
)
from app.models.sessions import (
    AgentSession,
    Chat,
    EvalRun,
    GoldenSet,
    Import,
    Message,
    SessionDraft,
    SessionEvent,
    SessionReception,
)
