"""The main function of a plugin: the handshake with the host, and the gRPC services. See docs/reference/plugin-protocol.md."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from concurrent import futures
from typing import Any

from .optimizer import Optimizer, build_optimizer
from .plugin import Refusal
from .program import HERE, ProgramError
from .quantizer import Quantizer, build_quantizer

COOKIE = "5a1f8d0c2b7e4e36a9c3d471f06be928"
PROTOCOL, API = 2, 1
MAX_MESSAGE = 64 << 20
MAX_TEXT = 4096


def serve(*plugins: Quantizer | Optimizer) -> None:
    """Serves a quantizer, an optimizer, or one of each, and returns when the host is done with them.

    Print nothing to standard output before: the host reads the first line there as the handshake. Afterwards whatever the
    plugin prints, and what it logs with the module logging, goes to the host's log. When a person starts the plugin it says
    what it is and exits.
    """
    if os.environ.get("CAGE_PLUGIN") != COOKIE:
        _by_hand(plugins)
        sys.exit(1)
    import grpc

    level = {"trace": "DEBUG", "debug": "DEBUG", "warn": "WARNING", "error": "ERROR"}.get(os.environ.get("CAGE_PLUGIN_LOG", ""), "INFO")
    logging.basicConfig(handlers=[_Lines()], format="%(message)s", level=level)
    limits = [("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.max_send_message_length", MAX_MESSAGE)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), options=limits)
    server.add_generic_rpc_handlers((_handlers(plugins),))
    socket = os.path.join(tempfile.mkdtemp(dir=os.environ.get("PLUGIN_UNIX_SOCKET_DIR")), "plugin")
    server.add_insecure_port("unix:" + socket)
    server.start()
    print(f"1|{PROTOCOL}|unix|{socket}|grpc", flush=True)
    sys.stdout = sys.stderr
    if os.environ.get("CAGE_PLUGIN_LIFELINE") == "stdin":
        sys.stdin.buffer.read()  # ends when the host is done, or gone
        server.stop(grace=0.5).wait()
        # Python waits for threads at its exit: one whose call never ends would outlive the host.
        end = threading.Timer(1, os._exit, (0,))
        end.daemon = True
        end.start()
    else:
        server.wait_for_termination()


def _by_hand(plugins: tuple[Quantizer | Optimizer, ...]) -> None:
    """Answers a person who started the plugin."""
    path = sys.argv[0]
    for p in plugins:
        try:
            p.description.check()
        except ValueError as e:
            print(f"this plugin cannot work: {e}", file=sys.stderr)
            return
        kind = "quantizer" if isinstance(p, Quantizer) else "optimizer"
        print(
            f"{os.path.basename(path)} is a plugin of cage: the {kind} {p.description.name}. "
            "The host starts it by itself; name its path in a run's TOML file.",
            file=sys.stderr,
        )
    print(f"To see its parameters: cage plugins show {path}", file=sys.stderr)


def _handlers(plugins: tuple[Quantizer | Optimizer, ...]) -> Any:
    import grpc

    from . import wire

    def method(request: str, answer: Callable[[Any], Any]) -> Any:
        def call(m: Any, context: Any) -> Any:
            try:
                return answer(m)
            except BaseException as e:  # noqa: BLE001 - of the author's code, SystemExit included, which gRPC does not answer
                code, reason, text = _failure(e)
                text = text[:MAX_TEXT].encode(errors="replace").decode()  # without lone surrogates
                logging.debug("%s", traceback.format_exc())
                context.set_trailing_metadata((("grpc-status-details-bin", _details(code.value[0], reason, text)),))
                context.abort(code, text)

        return grpc.unary_unary_rpc_method_handler(
            call, wire.message(request).FromString, lambda response: response.SerializeToString()
        )

    def describe(p: Quantizer | Optimizer) -> Callable[[Any], Any]:
        return lambda m: wire.message("DescribeResponse")(api_version=API, description=wire.to_description(p.description))

    def quantize(q: Quantizer) -> Callable[[Any], Any]:
        def answer(m: Any) -> Any:
            built = build_quantizer(q, wire.from_site(m.site))
            return wire.message("QuantizeResponse")(program=wire.to_quantizer_program(built))

        return answer

    def optimize(o: Optimizer) -> Callable[[Any], Any]:
        def answer(m: Any) -> Any:
            built = build_optimizer(o, wire.from_tensor(m.tensor))
            if built is None:
                return wire.message("ProgramResponse")(declined={})
            return wire.message("ProgramResponse")(program=wire.to_optimizer_program(built))

        return answer

    serving = grpc.unary_unary_rpc_method_handler(lambda m, context: b"\x08\x01")
    methods = {"/grpc.health.v1.Health/Check": serving}
    for p in plugins:
        if isinstance(p, Quantizer):
            methods[f"/{wire.PACKAGE}.Quantizer/Describe"] = method("DescribeRequest", describe(p))
            methods[f"/{wire.PACKAGE}.Quantizer/Quantize"] = method("QuantizeRequest", quantize(p))
        else:
            methods[f"/{wire.PACKAGE}.Optimizer/Describe"] = method("DescribeRequest", describe(p))
            methods[f"/{wire.PACKAGE}.Optimizer/Program"] = method("ProgramRequest", optimize(p))

    class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, call: Any) -> Any:
            return methods.get(call.method)

    return Handlers()


def _failure(e: BaseException) -> tuple[Any, str, str]:
    """The status of an exception: a refusal, a request of another version, or a mistake with the author's line."""
    import grpc

    from .wire import Unreadable

    if isinstance(e, Refusal):
        return grpc.StatusCode.INVALID_ARGUMENT, "REFUSED", str(e)
    if isinstance(e, Unreadable):
        return grpc.StatusCode.INVALID_ARGUMENT, "UNREADABLE_REQUEST", str(e)
    text = str(e) if isinstance(e, ProgramError) else f"{type(e).__name__}{': ' * bool(str(e))}{e}{_raised_at(e)}"
    return grpc.StatusCode.INTERNAL, "MISTAKE", text


def _raised_at(e: BaseException) -> str:
    """The innermost line of the exception that is neither in this package nor in an installed one."""
    for frame in reversed(traceback.extract_tb(e.__traceback__)):
        if not frame.filename.startswith(HERE) and "site-packages" not in frame.filename and os.path.exists(frame.filename):
            return f" ({os.path.basename(frame.filename)}:{frame.lineno})"
    return ""


def _details(code: int, reason: str, text: str) -> bytes:
    """A google.rpc.Status with an ErrorInfo, written by hand, because their types are in a package of their own."""

    def field(number: int, content: bytes) -> bytes:
        length, size = len(content), b""
        while length > 127:
            size, length = size + bytes([length & 127 | 128]), length >> 7
        return bytes([number << 3 | 2]) + size + bytes([length]) + content

    info = field(1, reason.encode()) + field(2, b"cage.plugin.v1")
    packed = field(1, b"type.googleapis.com/google.rpc.ErrorInfo") + field(2, info)
    return bytes([8, code]) + field(2, text.encode()) + field(3, packed)


class _Lines(logging.Handler):
    """Writes records in the form that the host reads: with level and message."""

    def emit(self, record: logging.LogRecord) -> None:
        level = "debug" if record.levelno < 20 else "info" if record.levelno < 30 else "warn" if record.levelno < 40 else "error"
        try:
            print(json.dumps({"@level": level, "@message": self.format(record)}), file=sys.__stderr__, flush=True)
        except Exception:  # such as arguments that do not fit the message
            self.handleError(record)
