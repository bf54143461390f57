"""Random tokens, their hashes, and signatures with the secret key."""

import hashlib
import hmac
import secrets

KEY_PREFIX = "up_"


def new_token() -> str:
    return secrets.token_urlsafe(32)


def new_key() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> str:
    """What is stored of a token. Tokens have 256 random bits, so a plain hash is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def sign(secret: str, purpose: str, message: str) -> str:
    """A signature that is good for one purpose only."""
    return hmac.new(
        secret.encode(), f"{purpose}:{message}".encode("utf-8", "surrogatepass"), hashlib.sha256
    ).hexdigest()


def same(left: str, right: str) -> bool:
    return hmac.compare_digest(left.encode("utf-8", "surrogatepass"), right.encode("utf-8", "surrogatepass"))
