"""Names and e-mail addresses as people type them: one form, within limits."""

import re

from app.errors import Invalid

EMAIL = re.compile(r"[^@\s\x00-\x1f\x7f]{1,64}@[^@\s\x00-\x1f\x7f]{1,189}")
MAX_NAME = 120


def clean_name(text: str, field: str = "name") -> str:
    """One line that can be read, without spaces around it."""
    text = " ".join(text.split())
    wrong = None
    if not text:
        wrong = "Give a name."
    elif len(text) > MAX_NAME:
        wrong = f"Use at most {MAX_NAME} characters."
    elif not text.isprintable():
        wrong = "Leave out characters that cannot be seen."
    if wrong:
        raise Invalid.of({field: wrong})
    return text


def clean_email(text: str, field: str = "email") -> str:
    """An address in lower case. Whether it exists, only a letter could tell."""
    text = text.strip().lower()
    if not EMAIL.fullmatch(text) or not text.isprintable():
        raise Invalid.of({field: "Give an e-mail address such as sam@example.com."})
    return text
