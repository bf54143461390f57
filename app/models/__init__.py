"""All tables, so that importing this package fills the metadata."""
# ruff: noqa: F401 - other packages import them from here

from app.models.agents import Agent, AgentVersion, ChangeDraft, Task, TaskTick
from app.models.conversations import Chat, Message
from app.models.entities import Entity, EntityResponse, EntityType
from app.models.evals import (
    CriteriaSet,
    CriteriaSetVersion,
    EvalRun,
    EvalVerdict,
    GoldenSet,
    JudgeLabel,
    Judgement,
    JudgementOverrule,
    KnowledgeScorecard,
)
from app.models.feedback import (
    Feedback,
    FeedbackComment,
    FeedbackDaily,
    FeedbackPattern,
    FeedbackPatternRow,
    ReviewRun,
)
from app.models.knowledge import (
    KnowledgeProof,
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
    ListColumns,
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
from app.models.sessions import AgentSession, Import, SessionDraft, SessionEvent, SessionReception
from app.models.webhooks import Webhook, WebhookDelivery, WebhookSubscription
