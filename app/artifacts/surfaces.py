"""Whether the surfaces that a loop declares exist. Who can tell is passed in: this package knows no routes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.artifacts.checks import RenderabilityProbe
from app.artifacts.model import KnowledgeLoopDefinition, KnowledgeSurface

# What a name stands for, such as the address of a page; None for nothing.
Resolver = Callable[[str], str | None]


@dataclass(frozen=True)
class ResolvedSurface:
    surface: KnowledgeSurface
    target: str | None


def resolve_knowledge_surfaces(
    loop: KnowledgeLoopDefinition, resolvers: Mapping[str, Resolver]
) -> list[ResolvedSurface]:
    """What each surface of a loop stands for. A kind without a resolver stands for nothing."""
    return [ResolvedSurface(one, _resolve(one, resolvers)) for one in loop.surfaces]


def unresolved_knowledge_surfaces(
    loop: KnowledgeLoopDefinition, resolvers: Mapping[str, Resolver]
) -> list[KnowledgeSurface]:
    """The surfaces of a loop that do not exist."""
    return [found.surface for found in resolve_knowledge_surfaces(loop, resolvers) if found.target is None]


def make_surface_probe(resolve_surface: Callable[[KnowledgeSurface], str | None]) -> RenderabilityProbe:
    """A probe for `require_renderable` from anything that resolves a surface."""
    return lambda surface: resolve_surface(surface) is not None


def probe_with(resolvers: Mapping[str, Resolver]) -> RenderabilityProbe:
    return make_surface_probe(lambda surface: _resolve(surface, resolvers))


def _resolve(surface: KnowledgeSurface, resolvers: Mapping[str, Resolver]) -> str | None:
    resolver = resolvers.get(surface.kind)
    return resolver(surface.name) if resolver else None
