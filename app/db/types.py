"""Column types that several tables share."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from sqlalchemy import DateTime, MetaData, Text, func, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column, registry

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

uuid_pk = Annotated[UUID, mapped_column(primary_key=True, server_default=func.gen_random_uuid())]
# When its transaction began; `write_time` tells apart rows that one transaction wrote.
timestamp = Annotated[datetime, mapped_column(server_default=func.now())]
write_time = Annotated[datetime, mapped_column(server_default=func.clock_timestamp())]
flag = Annotated[bool, mapped_column(server_default=text("false"))]
counter = Annotated[int, mapped_column(server_default=text("0"))]
json_object = Annotated[dict[str, Any], mapped_column(JSONB, server_default=text("'{}'::jsonb"))]
text_list = Annotated[list[str], mapped_column(ARRAY(Text), server_default=text("'{}'::text[]"))]


class Base(DeclarativeBase):
    """All tables. Text is unbounded in the database; limits are the edge's business, where they can be explained."""

    registry = registry(
        metadata=MetaData(naming_convention=NAMING),
        type_annotation_map={
            str: Text,
            datetime: DateTime(timezone=True),
            dict[str, Any]: JSONB,
            list[str]: ARRAY(Text),
        },
    )
