"""Grade what knowledge loops produce: an evidence claim, a plan, a product record. Pure: no database, model or clock.

A record becomes a `KnowledgeArtifact` through an adapter. A rubric, which is a lens over the loop that made the record,
grades it on six dimensions. A suite proves the rubric with labelled fixtures.
"""
