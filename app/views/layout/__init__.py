"""What every page shares: shell, navigation, search, saved views and errors."""

from flask import Blueprint

bp = Blueprint("layout", __name__)
