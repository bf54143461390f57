"""For any WSGI server: `app` on the database that the environment names."""

from app import create_app

app = create_app()
