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
from fairlead.live.clock import Clock
from fairlead.live.config import Config, Jobs, ServerTable
from fairlead.live.controller import Controller, Settings
from fairlead.live.database import Database
from fairlead.live.home import Home, read
from fairlead.live.observed import Observed
from fairlead.live.request import JobRequest
from fairlead.live.store import Store
from fairlead.live.tokens import Role, Tokens

if TYPE_CHECKING:
    from fastapi import FastAPI

    from fairlead.live.api.serve import Server

log = logging.getLogger("fairlead")
_LOG_BYTES, _LOGS_KEPT = 10 << 20, 5
_LINE = "%(asctime)s %(levelname)-7s %(message)s"
_CONNECT_S = 0.5


def serve(home: Home, config: Config, on_ready: Callable[[str], None], *, log_to_stderr: bool = True) -> None:
    """Run a controller in a home folder until SIGTERM or SIGINT; `on_ready` is told where it answers."""
    _need_extra()
    stack = assembly.stack_of(config)  # what is cheap to get wrong is tried first
    assembly.declare_profiles(config)
    interference = assembly.table_named(config.engine.interference)
    as_submitter = assembly.runs_as_submitter(config)
    check_tls(config.server)
    home.prepare()
    with contextlib.ExitStack() as held:
        held.enter_context(home.held(for_others=as_submitter))
        held.enter_context(_logging(home, log_to_stderr))
        _refuse_taken(config.server.host, config.server.port)
        if as_submitter:
            warn_unless_passable(home)
        database = Database(home.database)
        held.callback(database.close)
        store, tokens = Store(database), Tokens(database)
        loading = threading.Thread(target=importlib.import_module, args=("fairlead.live.api.app",))
        loading.start()  # it takes half a second, and so do the agents
        engine = assembly.engine_of(config, home.nodes)
        held.callback(engine.close)
        clock, numbers = Clock(store.fact("clock")), config.controller
        observed = Observed(clock, interference, is_fake=engine.is_fake)
        settings = Settings(
            poll_s=numbers.poll_s,
            lost_after_s=numbers.lost_after_s,
            save_s=numbers.save_s,
            keep_logs_s=config.jobs.keep_logs_days * 86400.0,
            as_submitter=as_submitter,
        )
        controller = Controller(store, engine, stack, clock, observed, settings)
        _keep_token(home, tokens)
        loading.join()
        app = _app(controller, store, tokens, config, as_submitter)
        held.callback(app.state.context.close)
        server = _server(app, config)
        home.write(home.url, server.url + "\n")
        held.callback(home.url.unlink, missing_ok=True)
        log.info("%s on %s, at %s", stack.spec, engine.cluster.describe(), server.url)
        with _looping(controller), _stopped_by_signals(server):
            on_ready(server.url)
            server.run()
        log.info("stopped; jobs go on")


def _need_extra() -> None:
    for name in ("fastapi", "prometheus_client", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise InputError(f"the live controller needs {name}", hint="pip install 'fairlead[live]'")


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
        handler.setFormatter(logging.Formatter(_LINE))
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
        _, token = tokens.create(getpass.getuser(), Role.ADMIN, "of the account that runs the controller")
        home.write(home.token, token + "\n")


def _app(controller: Controller, store: Store, tokens: Tokens, config: Config, as_submitter: bool) -> FastAPI:
    from fairlead.live.api.app import make_app

    def admit(request: JobRequest, user: str) -> JobRequest:
        if as_submitter:
            check_account(user)
        return with_defaults(request, config.jobs)

    return make_app(controller, store, tokens, config_view=config.to_dict(), admit=admit)


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
            hint="ask for a token with the name of an account, or set engine.as_submitter = false",
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
    from fairlead.live.api.serve import Server

    wanted = config.server
    cert, key = (None if path is None else Path(path) for path in (wanted.tls_cert, wanted.tls_key))
    return Server(app, wanted.host, wanted.port, tls_cert=cert, tls_key=key)


@contextlib.contextmanager
def _looping(controller: Controller) -> Iterator[None]:
    """The control loop in a thread of its own, until the block ends; then it saves what it knows."""
    stopping = threading.Event()
    thread = threading.Thread(target=controller.run, args=(stopping,), name="control-loop")
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        controller.wake()
        thread.join()


@contextlib.contextmanager
def _stopped_by_signals(server: Server) -> Iterator[None]:
    def stop(*_: object) -> None:
        server.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
