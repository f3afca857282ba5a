"""What a web application does with Flask-Session, which keeps its sessions in the server."""

from datetime import timedelta

import redis
from drive import PLACE, done, restart, until
from flask import Flask, session
from flask_session import Session

store = redis.Redis(**PLACE)


def application(**options):
    app = Flask(__name__)
    app.config.update(SESSION_TYPE="redis", SESSION_REDIS=redis.Redis(**PLACE), **options)
    Session(app)

    @app.post("/<name>/<value>")
    def keep(name, value):
        session[name] = value
        return session.sid

    @app.get("/")
    def shown():
        return dict(session)

    @app.post("/login")
    def login():
        app.session_interface.regenerate(session)
        session["user"] = "ann"
        return session.sid

    @app.post("/logout")
    def logout():
        session.clear()
        return ""

    return app


def kept(browser):
    """What the session of a browser holds."""
    return {name: value for name, value in browser.get("/").json.items() if name != "_permanent"}


def sessions():
    app = application(PERMANENT_SESSION_LIFETIME=timedelta(hours=1))
    ann, bob = app.test_client(), app.test_client()
    key = f"session:{ann.post('/colour/grün').text}"
    bob.post("/colour/red")
    ann.post("/size/10")
    assert kept(ann) == {"colour": "grün", "size": "10"} and kept(bob) == {"colour": "red"}
    assert kept(app.test_client()) == {}
    assert 3500 < store.ttl(key) <= 3600, store.ttl(key)
    # Another process with the same store.
    other = application().test_client()
    other.set_cookie("session", key.removeprefix("session:"))
    assert kept(other) == {"colour": "grün", "size": "10"}


def login():
    browser = application().test_client()
    before = browser.post("/basket/3").text
    after = browser.post("/login").text
    assert before != after and not store.exists(f"session:{before}") and store.exists(f"session:{after}")
    assert kept(browser) == {"basket": "3", "user": "ann"}
    browser.post("/logout")
    assert not store.exists(f"session:{after}") and kept(browser) == {}


def expires():
    browser = application(PERMANENT_SESSION_LIFETIME=timedelta(seconds=1)).test_client()
    key = f"session:{browser.post('/colour/red').text}"
    until("the session's end", lambda: not store.exists(key))
    assert kept(browser) == {}


def starting_again():
    browser = application().test_client()
    browser.post("/colour/red")
    restart()

    def answers():
        try:
            return store.ping()
        except redis.ConnectionError:
            return False

    until("an answer", answers)
    assert kept(browser) == {"colour": "red"}


for case in (sessions, login, expires, starting_again):
    case()
    done("Flask-Session", case)
