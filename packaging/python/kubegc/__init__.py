"""kubegc: an API server with every Kubernetes garbage collector, in one process that is ready in milliseconds.

    import kubegc

    with kubegc.Server() as server:
        run_my_operator(kubeconfig=server.kubeconfig)
        server.settle()          # returns when nothing is left to do
        server.advance("36h")    # the collectors' clock
        server.settle()

pytest finds the fixtures `kubegc`, `kubegc_client`, `kubegc_clock` and `settle` by itself. The command is `kubegc`.
"""
import base64
import datetime
import json
import os
import pathlib
import secrets
import shutil
import ssl
import subprocess
import sysconfig
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request

__all__ = ["Clock", "KubegcError", "NotSettled", "Server", "binary"]

#: How long a server may take to be ready, and to end, on a slow machine.
START_SECONDS = 60
STOP_SECONDS = 30
REQUEST_SECONDS = 30
#: How long the server waits at most until everything has settled.
LONGEST_SETTLE_SECONDS = 600


class KubegcError(Exception):
    """The server did not start, or refused a request."""


class NotSettled(KubegcError):
    """Something was still active after the timeout; `active` names it."""

    def __init__(self, message, active):
        super().__init__(message)
        self.active = active


def binary():
    """The path of the program: $KUBEGC_BINARY, the one that this package carries, or the one on PATH."""
    given = os.environ.get("KUBEGC_BINARY")
    if given:
        return given
    schemes = [None] + [name for name in sysconfig.get_scheme_names() if name.endswith("_user")]
    for scheme in schemes:
        folder = sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        path = pathlib.Path(folder, "kubegc")
        if path.is_file():
            return str(path)
    found = shutil.which("kubegc")
    if found is None:
        raise KubegcError("the program kubegc is not installed: `pip install kubegc`, or set $KUBEGC_BINARY")
    return found


def _duration(value):
    if isinstance(value, datetime.timedelta):
        return f"{value.total_seconds():.3f}s"
    if isinstance(value, (int, float)):
        return f"{value:.3f}s"
    return str(value)


class Clock:
    """The collectors' clock. Durations are `timedelta`, seconds, or text such as "36h"."""

    def __init__(self, server):
        self._server = server

    def advance(self, duration):
        """Sets the clock ahead by this much."""
        return self._server.request("POST", "clock", {"advance": _duration(duration)})

    def set_ahead(self, duration):
        """Sets how far the clock is ahead in all."""
        return self._server.request("POST", "clock", {"ahead": _duration(duration)})

    def now(self):
        """The collectors' time."""
        text = self._server.request("GET", "clock")["now"]
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))

    def ahead(self):
        """How far the clock is ahead, such as "36h0m0s"."""
        return self._server.request("GET", "clock")["ahead"]


class Server:
    """`kubegc up` on a free port, with everything in memory; stopped by `stop`, or at the end of a `with` block.

    `arguments` are further arguments of `kubegc up`, such as `["--workloads=off"]`.
    """

    def __init__(self, arguments=()):
        self.arguments = list(arguments)
        self.url = None
        self.kubeconfig = None
        self.clock = Clock(self)
        self._process = self._folder = self._output = None
        self._token = secrets.token_urlsafe(32)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Starts the server, and returns when it is ready."""
        self._folder = tempfile.TemporaryDirectory(prefix="kubegc-")
        self.kubeconfig = str(pathlib.Path(self._folder.name, "kubeconfig"))
        self._output = open(pathlib.Path(self._folder.name, "output"), "w+b")  # noqa: SIM115 (closed by stop)
        command = [binary(), "up", "--ephemeral", "--bind-address", "127.0.0.1:0", "--write-kubeconfig", self.kubeconfig]
        self._process = subprocess.Popen(
            [*command, *self.arguments],
            # The environment is no place that other users can read, as arguments are.
            env={**os.environ, "KUBEGC_TOKEN": self._token},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._output,
        )
        watchdog = threading.Timer(START_SECONDS, self._process.kill)
        watchdog.start()
        try:
            for line in self._process.stdout:
                self._output.write(line)
                _, found, url = line.decode(errors="replace").partition("ready on ")
                if found:
                    self.url = url.strip()
                    break
        finally:
            watchdog.cancel()
        if self.url is None:
            output = self.output()
            self.stop()
            raise KubegcError(f"kubegc up did not start:\n{output}")
        # The pipe is kept empty, so that nothing that is printed later blocks the server.
        threading.Thread(target=shutil.copyfileobj, args=(self._process.stdout, self._output), daemon=True).start()
        text = pathlib.Path(self.kubeconfig).read_text()
        [authority] = [line.split(":", 1)[1].strip() for line in text.splitlines() if "certificate-authority-data:" in line]
        self._tls = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
        return self

    def stop(self):
        """Stops the server; nothing is left behind."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
            self._process = None
            self.url = None
        if self._output is not None:
            self._output.close()
            self._output = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def output(self):
        """What the server has printed and logged so far; nothing before it was started and after it was stopped."""
        if self._output is None:
            return ""
        self._output.flush()
        return pathlib.Path(self._output.name).read_text(errors="replace")

    def request(self, method, path, query=None, timeout=REQUEST_SECONDS):
        """Calls /kubegc/v1/PATH as an administrator, and returns the decoded answer."""
        if self._process is None or self.url is None:
            raise KubegcError("the server does not run; call start(), or use it in a `with` block")
        url = f"{self.url}/kubegc/v1/{path}?{urllib.parse.urlencode(query or {})}"
        request = urllib.request.Request(url, method=method, headers={"Authorization": f"Bearer {self._token}"})
        # No proxy of the environment stands before a server on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._tls))
        try:
            with opener.open(request, timeout=timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            status = json.load(error)
            message = status.get("message", str(error))
            if error.code == 504:
                causes = (status.get("details") or {}).get("causes") or []
                raise NotSettled(message, [cause["message"] for cause in causes]) from None
            raise KubegcError(message) from None

    def settle(self, timeout=10):
        """Returns when nothing is left to do: no collector, controller or watch. Raises `NotSettled` after the timeout.

        The timeout is a `timedelta`, seconds, or text such as "10s"; the server waits ten minutes at most.
        """
        return self.request("POST", "settle", {"timeout": _duration(timeout)}, LONGEST_SETTLE_SECONDS + REQUEST_SECONDS)

    def advance(self, duration):
        """Sets the collectors' clock ahead."""
        return self.clock.advance(duration)

    def reset(self):
        """Puts objects and clock back to how they were at the start, for the next test on the same server."""
        return self.request("POST", "reset")
