"""Names and e-mail addresses as people type them: one form, within limits."""

import re

from app.errors import Invalid

EMAIL = re.compile(r"[^@\s\x00-\x1f\x7f]{1,64}@[^@\s\x00-\x1f\x7f]{1,189}")
MAX_NAME = 120


def clean_name(text: str, field: str = "name") -> str:
    """One line that can be read, without spaces around it."""
    text = " ".join(text.split())
    if not text:
        raise Invalid("Give a name.", {field: "Give a name."})
    if len(text) > MAX_NAME:
        sentence = f"Use at most {MAX_NAME} characters."
        raise Invalid(sentence, {field: sentence})
    if not text.isprintable():
        sentence = "Leave out characters that cannot be seen."
        raise Invalid(sentence, {field: sentence})
    return text


def clean_email(text: str, field: str = "email") -> str:
    """An address in lower case. Whether it exists, only a letter could tell."""
    text = text.strip().lower()
    if not EMAIL.fullmatch(text) or not text.isprintable():
        raise Invalid("Give an e-mail address.", {field: "Give an e-mail address such as sam@example.com."})
    return text
