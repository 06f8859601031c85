"""What `fairlead up` runs: store, control loop and HTTP server over the parts that the configuration names.

The control loop has a thread of its own; the server has the main one, since signals arrive there. SIGTERM and SIGINT
stop both and nothing else: agents and jobs go on, and the next controller takes them over.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import logging
import logging.handlers
import os
import pwd
import signal
import socket
import ssl
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.errors import InputError
from fairlead.live import assembly
from fairlead.live.assembly import EVERYONE_IS_ROOT
from fairlead.live.config import Config, Jobs, ServerTable
from fairlead.live.control.clock import Clock
from fairlead.live.control.controller import Controller
from fairlead.live.control.observations import Observations
from fairlead.live.control.settings import Settings
from fairlead.live.history import HistoryRecorder
from fairlead.live.home import WARNING, Home, read
from fairlead.live.jobs.request import JobRequest
from fairlead.live.storage.audit import HERE, Act, Audit, own_account
from fairlead.live.storage.database import Database
from fairlead.live.storage.store import Store
from fairlead.live.storage.tokens import Role, Tokens
from fairlead.node.process.file_descriptors import raise_limit
from fairlead.printable import printable

if TYPE_CHECKING:
    from fastapi import FastAPI

    from fairlead.live.api.server import Server

log = logging.getLogger("fairlead")
_LOG_BYTES, _LOGS_KEPT = 10 << 20, 5
_LINE = "%(asctime)s %(levelname)-7s %(message)s"
_CONNECT_S = 0.5
_SPARE_BYTES = 16 << 20
"""Kept for the database: some ten thousand submissions, or all cancellations that there could be."""
_LOOP_ENDS_S, _ENDS_S = 5.0, 20.0
"""After a signal the loop has so long to end, and the process."""


def serve(
    home: Home, config: Config, on_ready: Callable[[str, Callable[[], str]], None], *, log_to_stderr: bool = True
) -> None:
    """Run a controller in a home folder until SIGTERM or SIGINT.

    `on_ready` is told where it answers, and gets a function that makes a code to sign in to its page with.
    """
    _need_extra()
    raise_limit()
    stack = assembly.stack_of(config)  # what is cheap to get wrong is tried first
    catalogue = assembly.catalogue_of(config)
    interference = assembly.table_named(config.engine.interference)
    as_submitter = assembly.runs_as_submitter(config)
    check_tls(config.server)
    home.prepare()
    with contextlib.ExitStack() as held:
        held.enter_context(home.held(for_others=as_submitter))
        held.enter_context(_logging(home, log_to_stderr))
        starting = held.enter_context(contextlib.ExitStack())
        if not log_to_stderr:
            starting.enter_context(_warnings_on_stderr())
        _refuse_taken(config.server.host, config.server.port)
        if as_submitter:
            warn_unless_passable(home)
        elif os.geteuid() == 0:
            log.warning("jobs run as root, whoever submits them: engine.as_submitter is %r", EVERYONE_IS_ROOT)
        database = Database(home.database, spare_bytes=_SPARE_BYTES)
        held.callback(database.close)
        store, tokens = Store(database), Tokens(database)
        loading = threading.Thread(target=importlib.import_module, args=("fairlead.live.api.app",))
        loading.start()  # it takes half a second, and so do the agents
        engine = assembly.engine_of(config, home, store)
        held.callback(engine.close)
        store.number_jobs_above(engine.highest_job_id())  # the database may be an older one than they knew
        clock, numbers = Clock(store.fact("clock")), config.controller
        observations = Observations(clock, interference, is_fake=engine.is_fake)
        settings = Settings(
            poll_s=numbers.poll_s,
            lost_after_s=numbers.lost_after_s,
            save_s=numbers.save_s,
            keep_logs_s=config.jobs.keep_logs_days * 86400.0,
            as_submitter=as_submitter,
            decide_s=numbers.decide_s,
        )
        controller = Controller(store, engine, stack, clock, observations, settings, catalogue=catalogue)
        _keep_token(home, tokens)
        note_start(store, stack.spec, as_submitter)
        loading.join()
        app = _app(controller, store, tokens, config, as_submitter)
        held.callback(app.state.context.close)
        server = _server(app, config)
        home.write(home.url, server.url + "\n")
        held.callback(home.url.unlink, missing_ok=True)
        log.info("%s on %s, at %s", stack.spec, engine.cluster.describe(), server.url)
        recorder = HistoryRecorder(controller, database)
        recorder.start()
        held.callback(recorder.close)
        with _looping(controller), _stopped_by_signals(server):
            starting.close()
            on_ready(server.url, lambda: _code(home, tokens, app))
            server.run()
        log.info("stopped; jobs go on")


def _need_extra() -> None:
    for name in ("fastapi", "prometheus_client", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise InputError(f"the live controller needs {name}", hint="pip install 'fairlead[live]'")


class _Line(logging.Formatter):
    """One line for one message, whatever the names and last words in it hold; tracebacks follow it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))


@contextlib.contextmanager
def _logging(home: Home, to_stderr: bool) -> Iterator[None]:
    """Lines for people, in a file of bounded size and, unless told otherwise, on stderr."""
    handlers: list[logging.Handler] = [
        logging.handlers.RotatingFileHandler(home.log, maxBytes=_LOG_BYTES, backupCount=_LOGS_KEPT, encoding="utf-8")
    ]
    if to_stderr:
        handlers.append(logging.StreamHandler(sys.stderr))
    loggers = [log, logging.getLogger("uvicorn.error")]
    for handler in handlers:
        handler.setFormatter(_Line(_LINE))
        for logger in loggers:
            logger.addHandler(handler)
    log.setLevel(logging.INFO)
    loggers[1].setLevel(logging.WARNING)
    try:
        yield
    finally:
        for handler in handlers:
            for logger in loggers:
                logger.removeHandler(handler)
            handler.close()


@contextlib.contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    """Whoever starts a controller hears what is wrong with that, though all else goes to the file only."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter(f"{WARNING}%(message)s"))
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def _refuse_taken(host: str, port: int) -> None:
    """Before anything is started, so that who comes second finds out at once."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), _CONNECT_S):
        raise InputError(
            f"somebody answers on {host}:{port} already",
            hint="give another port with --port, or 0 for any that is free",
        )


def _keep_token(home: Home, tokens: Tokens) -> None:
    """An administrator's, for whoever runs this: made on the first start, kept as long as it stands."""
    found = tokens.find(read(home.token))
    if found is None or found.role is not Role.ADMIN:
        user = getpass.getuser()
        noted = Act(own_account(), "token-created", source=HERE, about=f"for {user}, admin, in the home folder")
        _, token = tokens.create(user, Role.ADMIN, "of the account that runs the controller", act=noted)
        home.write(home.token, token + "\n")


def _code(home: Home, tokens: Tokens, app: FastAPI) -> str:
    owner = tokens.find(read(home.token))
    assert owner is not None  # `_keep_token` has seen to it
    code: str = app.state.context.sessions.make_code(owner)
    return code


def note_start(store: Store, policy: str, as_submitter: bool) -> None:
    """In the audit log: who started a controller, and where it differs from the last one, under which policy."""
    before, account = store.fact("policy"), own_account()
    audit = Audit(store.database)
    runs = "" if as_submitter else f", all jobs as {account}"
    audit.note(Act(account, "controller-started", source=HERE, about=f"{policy}{runs}"))
    if before is not None and before != policy:
        audit.note(Act(account, "policy-changed", source=HERE, about=f"from {before} to {policy}"))
    store.save((), facts={"policy": policy}).result()


def _app(controller: Controller, store: Store, tokens: Tokens, config: Config, as_submitter: bool) -> FastAPI:
    from fairlead.live.api.app import make_app

    def admit(request: JobRequest, user: str) -> JobRequest:
        if as_submitter:
            check_account(user)
        return with_defaults(request, config.jobs)

    return make_app(
        controller,
        store,
        tokens,
        config_view=config.to_dict(),
        admit=admit,
        token_life_s=config.server.token_days * 86400.0,
        session_life_s=config.server.session_hours * 3600.0,
    )


def check_tls(server: ServerTable) -> None:
    """Certificate and key are there, and belong together."""
    if server.tls_cert is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(server.tls_cert, server.tls_key)
    except OSError as error:
        raise InputError(
            f"server.tls_cert = {server.tls_cert!r} and server.tls_key = {server.tls_key!r} cannot be used: {error}",
            hint="a certificate and its key, as PEM files",
        ) from None


def check_account(user: str) -> None:
    """Where jobs run as their submitters, these must be accounts of the machine."""
    try:
        pwd.getpwnam(user)
    except KeyError:
        raise InputError(
            f"jobs run under their users' accounts, and this machine has no account {user!r}",
            hint="ask for a token with the name of an account of this machine",
        ) from None


def warn_unless_passable(home: Home) -> None:
    """Jobs report into the home folder: other accounts have to get there."""
    closed = [folder for folder in home.path.parents if not folder.stat().st_mode & stat.S_IXOTH]
    if closed:
        log.warning(
            "jobs of other accounts cannot pass through %s, so what they report is lost; choose another --home, like"
            " /var/lib/fairlead",
            closed[-1],
        )


def with_defaults(request: JobRequest, jobs: Jobs) -> JobRequest:
    """What the request leaves open is as configured."""
    given = request.model_fields_set
    missing: dict[str, Any] = {n: getattr(jobs, n) for n in ("retries", "grace_s") if n not in given}
    return request.model_copy(update=missing)


def _server(app: FastAPI, config: Config) -> Server:
    from fairlead.live.api.server import Server

    wanted = config.server
    cert, key = (None if path is None else Path(path) for path in (wanted.tls_cert, wanted.tls_key))
    return Server(
        app,
        wanted.host,
        wanted.port,
        tls_cert=cert,
        tls_key=key,
        connections=wanted.connections,
        connections_each=wanted.connections_each,
    )


@contextlib.contextmanager
def _looping(controller: Controller) -> Iterator[None]:
    """The control loop in a thread of its own, until the block ends; then it saves what it knows.

    One that does not come to an end is left where it is: what was acknowledged is on the disk.
    """
    stopping = threading.Event()
    thread = threading.Thread(target=controller.run, args=(stopping,), name="control-loop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        controller.wake()
        thread.join(_LOOP_ENDS_S)
        if thread.is_alive():
            log.error("the control loop has not ended within %g s, and is left", _LOOP_ENDS_S)


def _leave() -> None:
    """End, whichever thread hangs: the next controller finds everything that this one acknowledged."""
    log.error("not ended within %g s of the signal; leaving everything as it is", _ENDS_S)
    os._exit(0)


@contextlib.contextmanager
def _stopped_by_signals(server: Server) -> Iterator[None]:
    def stop(*_: object) -> None:
        last = threading.Timer(_ENDS_S, _leave)
        last.daemon = True
        last.start()
        server.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
