"""The one address of XML-RPC."""

from __future__ import annotations

import logging
from http import HTTPStatus

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from tradewind.errors import TradewindError
from tradewind.service.api.authentication import address_of, context_of, record_refusal
from tradewind.service.faults import http_status, xmlrpc_fault
from tradewind.service.xmlrpc.access import XmlRpcAuthenticator
from tradewind.service.xmlrpc.codec import read_call
from tradewind.service.xmlrpc.procedures import call_procedure
from tradewind.service.xmlrpc.writing import encode_answer, encode_fault

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
    return response


def _callers(request: Request) -> XmlRpcAuthenticator:
    state = request.app.state
    if not hasattr(state, "callers"):
        state.callers = XmlRpcAuthenticator(context_of(request).accounts)
    found: XmlRpcAuthenticator = state.callers
    return found


def _xml(data: bytes) -> Response:
    return Response(data, media_type="text/xml")
