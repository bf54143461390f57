"""How much a session, its events and a chat may hold. The API, imports and the services read the same numbers."""

import re

AGENT_SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,119}")
SLUG_FORM = "Send 1 to 120 small letters, digits, dots, hyphens and underscores, such as deal-analyst."
NAME = 256  # Ids that others gave: external_id, trace_id, turn_id.
TITLE = 300
ERROR = 4096
MODEL = 200
ENVIRONMENT = 60
OUTPUT_TYPE = 60
TAGS = 20
TAG = 60
TOKENS = 10**12
DURATION_MS = 10**12
COST = 10_000_000
METADATA_BYTES = 262_144
PAYLOAD_BYTES = 262_144
# The same payload as the database writes it: spaced, and with every digit of its numbers.
STORED_PAYLOAD_BYTES = 1_048_576
# All payloads of a session together, unless the operator says otherwise.
SESSION_BYTES = 64_000_000
EVENTS_AT_ONCE = 1000
EVENTS_IN_SESSION = 50_000
MESSAGES_AT_ONCE = 500
MESSAGE = 262_144
LINE_BYTES = 1_048_576
