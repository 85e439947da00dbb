"""The address of XML-RPC, ``/RPC2``, and authentication of its callers by HTTP Basic or a bearer token."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import math
import secrets
import threading
from collections import OrderedDict
from http import HTTPStatus

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from tradewind.errors import SignInError, TradewindError
from tradewind.service.accounts.account_service import AccountService
from tradewind.service.accounts.credentials import TOKEN_PREFIX
from tradewind.service.accounts.identity import Principal
from tradewind.service.api.authentication import address_of, context_of, record_refusal
from tradewind.service.http.responses import http_status, xmlrpc_fault
from tradewind.service.xmlrpc.codec import encode_answer, encode_fault, read_call
from tradewind.service.xmlrpc.procedures import call_procedure

_MOST_KNOWN = 1000
_HINT = "send the user's name and a token (or the password) by HTTP Basic, or Authorization: Bearer tw_..."


class XmlRpcAuthenticator:
    """Authenticates the callers of XML-RPC.

    A password takes a while to check on purpose, and a client sends it with every call: the first call begins a
    session, and the others go on with it for as long as it lasts. Names and passwords are remembered as keyed digests.

    Args:
        accounts: The accounts.
    """

    def __init__(self, accounts: AccountService) -> None:
        self._accounts = accounts
        self._key = secrets.token_bytes(32)
        self._sessions: OrderedDict[bytes, str] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, header: str, address: str) -> Principal:
        """Find the user of a call.

        Args:
            header: The header Authorization.
            address: Network address of the caller.

        Raises:
            SignInError: The credentials are not valid.
            TooManyError: Too many attempts with a password.
        """
        scheme, _, given = header.strip().partition(" ")
        if scheme.lower() == "bearer":
            return self._accounts.by_token(given.strip(), address)
        if scheme.lower() != "basic":
            raise SignInError("nobody has signed in", hint=_HINT)
        try:
            name, sign, secret = base64.b64decode(given.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise SignInError("the header Authorization cannot be read", hint=_HINT) from None
        if not sign:
            raise SignInError("the header Authorization cannot be read", hint=_HINT)
        if secret.startswith(TOKEN_PREFIX):
            return self._by_token(name, secret, address)
        return self._by_password(name, secret, address)

    def _by_token(self, name: str, secret: str, address: str) -> Principal:
        who = self._accounts.by_token(secret, address)
        if name and name.strip().lower() != who.name.lower():
            raise SignInError("this token is another user's", hint=_HINT)
        return who

    def _by_password(self, name: str, password: str, address: str) -> Principal:
        place = hmac.digest(self._key, f"{len(name)} {name}{password}".encode("utf-8", "replace"), hashlib.sha256)
        with self._lock:
            session = self._sessions.get(place)
        if session is not None:
            try:
                return self._accounts.by_session(session, address)[0]
            except SignInError:  # it is over: by time, by another password, by an administrator
                with self._lock:
                    self._sessions.pop(place, None)
        session = self._accounts.sign_in(name, password, address, "XML-RPC").secret
        with self._lock:
            self._sessions[place] = session
            while len(self._sessions) > _MOST_KNOWN:
                self._sessions.popitem(last=False)
        return self._accounts.by_session(session, address)[0]


router = APIRouter(include_in_schema=False)

_log = logging.getLogger("tradewind.service.xmlrpc")


@router.post("/RPC2")
async def rpc2(request: Request) -> Response:
    """Answer a call: with a value, or with a fault."""
    body = await request.body()
    return await run_in_threadpool(_answer, request, body)


def _answer(request: Request, body: bytes) -> Response:
    shared = context_of(request)
    try:
        who = _callers(request).find(request.headers.get("authorization", ""), address_of(request))
        request.state.who = who
        wanted = read_call(body)
        return _xml(encode_answer(call_procedure(shared, who, wanted.method, wanted.arguments)))
    except TradewindError as error:
        record_refusal(request, error)
        return _refusal(error)
    except Exception:
        _log.exception("a call of XML-RPC failed")
        return _xml(encode_fault(500, "error: the server failed; its log says more"))


def _refusal(error: TradewindError) -> Response:
    response = _xml(encode_fault(*xmlrpc_fault(error)))
    # Who must sign in learns it from HTTP, as the specification of XML-RPC leaves it to the level below.
    if http_status(error) == HTTPStatus.UNAUTHORIZED:
        response.status_code = HTTPStatus.UNAUTHORIZED
        response.headers["WWW-Authenticate"] = 'Basic realm="Tradewind", charset="UTF-8"'
    elif http_status(error) in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        response.status_code = http_status(error)
        if wait := getattr(error, "wait", 0.0):
            response.headers["Retry-After"] = str(math.ceil(wait))
    return response


def _callers(request: Request) -> XmlRpcAuthenticator:
    state = request.app.state
    if not hasattr(state, "callers"):
        state.callers = XmlRpcAuthenticator(context_of(request).accounts)
    found: XmlRpcAuthenticator = state.callers
    return found


def _xml(data: bytes) -> Response:
    return Response(data, media_type="text/xml")
