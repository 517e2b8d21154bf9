#!/usr/bin/env python3
"""Replay recorded stories against a Kubernetes-compatible API server and say where it answers otherwise
than kube-apiserver did.

    apidiff.py check  --server URL [--token T] [--ca FILE | --insecure] cases.jsonl.xz
    apidiff.py record --server URL ... -o OUT.jsonl stories.jsonl      (plays, and writes the answers down)
    apidiff.py settle --server URL ... -o cases OUT.jsonl             (plays again, drops what is not the same, splits)
    apidiff.py show   ID cases.jsonl.xz                               (one story, readable)

Files that end with .xz are decompressed. The README of the recordings says what a story is and what is compared.
Needs Python 3.9 and nothing else.
"""
import argparse, collections, copy, datetime, http.client, json, lzma, os, random, re, ssl, string, sys, threading, time, zlib
from urllib.parse import urlsplit, quote

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ]\d\d:\d\d:\d\d(\.\d+)?(?:Z|[+-]\d\d:\d\d| [+-]\d{4} [A-Z]+)(?: m=[+-][\d.]+)?")
REF = re.compile(r"\{([A-Za-z_]\w*)((?:\.[\w-]+)*)\}")
REP = re.compile(r"\{rep:(.):(\d+)\}")  # a character so many times
AGE = re.compile(r"(\d+[ydhms]){1,3}( ago)?")
VERSION = re.compile(r'(resourceVersion\\*":\s*\\*")\d+')
IPV4 = re.compile(r"\d{1,3}(\.\d{1,3}){3}")
TRIES = 4  # plays of a story whose Service gets, by chance, an address that the story sends in another request
IGNORED_NAMES = {"kube-root-ca.crt"}


# ---------------------------------------------------------------- JSON helpers
def parts(pointer):
    return [p.replace("~1", "/").replace("~0", "~") for p in pointer.split("/")[1:]]


def put(doc, pointer, value):
    *path, last = parts(pointer)
    for p in path:
        doc = doc[int(p)] if isinstance(doc, list) else doc.setdefault(p, {})
    if isinstance(doc, list):
        doc.append(value) if last == "-" or int(last) == len(doc) else doc.__setitem__(int(last), value)
    else:
        doc[last] = value


def cut(doc, pointer):
    *path, last = parts(pointer)
    for p in path:
        doc = (doc[int(p)] if int(p) < len(doc) else None) if isinstance(doc, list) else doc.get(p) if isinstance(doc, dict) else None
        if doc is None:
            return
    if isinstance(doc, list):
        if int(last) < len(doc):
            del doc[int(last)]
    elif isinstance(doc, dict):
        doc.pop(last, None)


def at(doc, pointer, default=None):
    for p in parts(pointer):
        try:
            if isinstance(doc, list) and "=" in p:  # the item that has this
                key, _, value = p.partition("=")
                doc = next((x for x in doc if str(at(x, "/" + key.replace(".", "/"))) == value), default)
            else:
                doc = doc[int(p)] if isinstance(doc, list) else doc[p]
        except (KeyError, IndexError, TypeError, ValueError):
            return default
    return doc


def delta(a, b, where="", out=None):
    """Returns the changes that turn a into b: [[pointer, value] or [pointer], ...]."""
    out = [] if out is None else out
    if isinstance(a, dict) and isinstance(b, dict):
        for k in a:
            p = where + "/" + k.replace("~", "~0").replace("/", "~1")
            if k not in b:
                out.append([p])
            else:
                delta(a[k], b[k], p, out)
        for k in b:
            if k not in a:
                out.append([where + "/" + k.replace("~", "~0").replace("/", "~1"), b[k]])
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and where:
        for i, (x, y) in enumerate(zip(a, b)):
            delta(x, y, f"{where}/{i}", out)
    elif a != b or type(a) is not type(b):
        out.append([where, b])
    return out


def patch(doc, changes):
    doc = copy.deepcopy(doc)
    for c in changes:
        if len(c) == 1:
            cut(doc, c[0])
        elif c[0] == "":
            doc = copy.deepcopy(c[1])
        else:
            put(doc, c[0], copy.deepcopy(c[1]))
    return doc


# ---------------------------------------------------------------- the server
class Server:
    def __init__(self, a):
        self.url, self.token, self.local, self.docs, self.lock = urlsplit(a.server), a.token, threading.local(), {}, threading.Lock()
        self.tls = None
        if self.url.scheme == "https":
            self.tls = ssl.create_default_context(cafile=a.ca)
            if a.insecure:
                self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE

    def send(self, method, path, body=None, headers=None):
        head = {"Accept": "application/json", "User-Agent": "apidiff/1"}
        if self.token:
            head["Authorization"] = "Bearer " + self.token
        if body is not None:
            head["Content-Type"] = "application/json"
        head.update(headers or {})
        path = quote(path, safe="/:?&=%,!()~+.-_*@;$'\"[]{}".replace('"', "").replace("{", "").replace("}", ""))
        for attempt in range(60):
            conn = getattr(self.local, "conn", None)
            if conn is None:
                c = http.client.HTTPSConnection if self.tls else http.client.HTTPConnection
                conn = self.local.conn = c(self.url.hostname, self.url.port, timeout=60, **({"context": self.tls} if self.tls else {}))
            try:
                conn.request(method, path, body.encode() if isinstance(body, str) else body, head)
                r = conn.getresponse()
                raw = r.read()
            except (OSError, http.client.HTTPException):
                conn.close()
                self.local.conn = None
                if attempt > 2:
                    raise
                time.sleep(0.1)
                continue
            if r.status == 429 and method != "GET" and b"storage is (re)initializing" in raw or r.status == 429 and b"too many requests" in raw.lower() and b"Eviction" not in raw:
                time.sleep(0.2)
                continue
            break
        return r.status, raw, r.headers

    def me(self):
        """Returns the user's own name and uid, which differ from server to server."""
        with self.lock:
            if "me" not in self.docs:
                try:
                    info = json.loads(self.send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", '{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}')[1])["status"]["userInfo"]
                except (ValueError, KeyError, TypeError):
                    info = {}
                self.docs["me"] = (info.get("username"), info.get("uid"))
            return self.docs["me"]

    def doc(self, path):
        """Returns a document that is the same for all stories (discovery, OpenAPI)."""
        with self.lock:
            if path not in self.docs:
                if path.startswith("/openapi/v3/") and "?" not in path:
                    index = self.docs.get("/openapi/v3") or json.loads(self.send("GET", "/openapi/v3")[1])
                    self.docs["/openapi/v3"] = index
                    url = index["paths"].get(path[len("/openapi/v3/"):], {}).get("serverRelativeURL", path)
                else:
                    url = path
                code, raw, _ = self.send("GET", url)
                try:
                    self.docs[path] = (code, json.loads(raw))
                except ValueError:
                    self.docs[path] = (code, raw.decode("utf8", "replace"))
            return self.docs[path]


# ---------------------------------------------------------------- playing
def without_descriptions(x):
    if isinstance(x, dict):
        return {k: without_descriptions(v) for k, v in x.items() if not (k == "description" and isinstance(v, str))}
    return [without_descriptions(v) for v in x] if isinstance(x, list) else x


def brief(s):
    """Abbreviates a long string to its beginning and a checksum."""
    return s if len(s) <= 600 else f"{s[:200]}… <{len(s)} characters, {zlib.crc32(s.encode()):08x}>"


def without_column_descriptions(b):
    if isinstance(b, list):
        return [{**e, "object": without_column_descriptions(e["object"])} if isinstance(e, dict) and "object" in e else e for e in b]
    if isinstance(b, dict) and b.get("kind") == "Table" and isinstance(b.get("columnDefinitions"), list):
        return {**b, "columnDefinitions": without_descriptions(b["columnDefinitions"])}
    return b


class Play:
    def __init__(self, server, story):
        self.server, self.story = server, story
        text = json.dumps(story["s"]) + json.dumps(story.get("base"))
        self.asked = text
        r = random.SystemRandom()
        word = lambda n: "".join(r.choices(string.ascii_lowercase, k=n))
        self.vars = {"ns": "d-" + word(10), "u": "u" + word(9), "ip": f"172.{r.randint(16, 31)}.{r.randint(0, 255)}.{r.randint(1, 254)}"}
        self.uses_ns = "{ns}" in text
        self.kept, self.uids, self.made, self.gen = {}, {}, [], None
        self.answers = []
        self.accepted, self.coincides = "", False

    # substitution
    def look(self, m):
        name, dotted = m[1], m[2]
        if not dotted and name in self.vars:
            return self.vars[name]
        if name not in self.kept:
            return m[0]
        v = self.kept[name]
        for p in dotted.split(".")[1:]:
            v = (v[int(p)] if int(p) < len(v) else "") if isinstance(v, list) else v.get(p, "") if isinstance(v, dict) else ""
        return v if isinstance(v, str) else json.dumps(v)

    def fill(self, x):
        if isinstance(x, str):
            return REF.sub(self.look, REP.sub(lambda m: m[1] * int(m[2]), x) if "{rep:" in x else x)
        if isinstance(x, dict):
            return {self.fill(k): self.fill(v) for k, v in x.items()}
        return [self.fill(v) for v in x] if isinstance(x, list) else x

    def body(self, step):
        if "raw" in step:
            return self.fill(step["raw"])
        if "b" in step:
            doc = self.fill(step["b"])
        elif "from" in step:
            doc = copy.deepcopy(self.kept.get(step["from"], {}))
            doc = doc if isinstance(doc, dict) else {}
        elif "set" in step or step.get("base"):
            doc = self.fill(self.story["base"])
        else:
            return None
        for c in step.get("set", []):
            try:
                if len(c) == 1:
                    cut(doc, self.fill(c[0]))
                elif c[0] == "":
                    doc = self.fill(c[1])
                else:
                    put(doc, self.fill(c[0]), self.fill(c[1]))
            except (KeyError, IndexError, TypeError, ValueError, AttributeError):
                pass  # the object is not what it was when this was recorded
        return json.dumps(doc, ensure_ascii=False, separators=(",", ":"))  # compact, as clients send: raw extensions are kept byte by byte

    # normalisation
    def word(self, s):
        if len(s) > 3000:
            return f"{self.word(s[:200])}… <{len(s) // 1000} thousand characters>"
        for k in ("ns", "u", "ip"):
            s = s.replace(self.vars[k], "{" + k + "}")
        s = UUID.sub(lambda m: m[0] if m[0] in self.asked else self.uids.get(m[0], "<uid>"), s)

        def when(m):
            try:
                day = datetime.date(int(m[1]), int(m[2]), int(m[3]))
            except ValueError:
                return m[0]
            near = abs((day - datetime.date.today()).days) < 3
            return ("<now.>" if m[4] else "<now>") if near else m[0]

        s = TIME.sub(when, VERSION.sub(r"\1<rv>", s))
        return brief(self.gen.sub("<generated>", s) if self.gen else s)

    def cell(self, c):
        """Normalises the addresses and ports in a Table."""
        c = self.clean(c)
        return re.sub(r":3\d{4}/", ":<port>/", re.sub(r"\b10\.0\.0\.\d+\b", "<ip>", c)) if isinstance(c, str) else c

    def clean(self, x, key="", parent=None):
        if isinstance(x, dict):
            out = {}
            for k in sorted(x):
                v = x[k]
                if k == "managedFields" and key == "metadata" and not self.story.get("mf"):
                    continue
                if k == "username" and v == self.server.me()[0]:
                    out[k] = "<me>"
                    continue
                if k in ("uid", "extra") and x.get("username") == self.server.me()[0]:
                    continue
                if k == "resourceVersion" and isinstance(v, str) and v and "resourceVersion\": \"" + v not in self.asked:
                    out[k] = "<rv>"
                elif isinstance(v, str) and v and (k == "continue" and key == "metadata" or k == "/metadata/continue"):
                    out[k] = "<continue>"
                elif k in ("nodePort", "healthCheckNodePort") and isinstance(v, int) and 30000 <= v <= 34000 and str(v) not in self.asked:
                    out[k] = "<port>"
                elif k in ("clusterIP", "clusterIPs") and v and not json.dumps(v).strip("[]\" ") in self.asked:
                    out[k] = json.loads(IPV4.sub("<ip>", json.dumps(v)))
                elif k == "managedFields" and isinstance(v, list):
                    out[k] = sorted((self.clean(i, k) for i in v), key=lambda i: json.dumps([i.get(n, "") for n in ("manager", "operation", "subresource", "apiVersion")]) if isinstance(i, dict) else "")
                elif k == "nonResourceURLs" and key == "nonResourceRules" and isinstance(v, list):
                    out[k] = sorted(v)
                elif k in ("nonResourceRules", "resourceRules") and key == "status" and isinstance(v, list):
                    out[k] = sorted((self.clean(i, k) for i in v), key=lambda i: json.dumps(i, sort_keys=True))
                elif k == "storageVersionHash" and self.story["t"] == "crd":
                    out[k] = "<hash>"
                elif k == "token" and isinstance(v, str) and len(v) > 200:
                    out[k] = "<token>"
                elif k in ("items", "rows") and isinstance(v, list):
                    out[k] = [self.clean(i, k) for i in v if not (isinstance(i, dict) and (at(i, "/metadata/name") or at(i, "/object/metadata/name")) in IGNORED_NAMES)]
                elif k == "cells" and isinstance(v, list):
                    out[k] = ["<age>" if isinstance(c, str) and AGE.fullmatch(c) and c not in self.asked else self.cell(c) for c in v]
                else:
                    out[self.word(k)] = self.clean(v, k)
            return out
        if isinstance(x, list):
            return [self.clean(i, key) for i in x]
        return self.word(x) if isinstance(x, str) else x

    def answer(self, step, code, raw, headers, sent=None):
        self.gen = None
        if sent and '"generateName"' in sent:
            try:
                gen = json.loads(sent)["metadata"]["generateName"]
                self.gen = re.compile(re.escape(gen[:58]) + "[a-z0-9]{5}(?![a-z0-9])")
            except (ValueError, KeyError, TypeError):
                pass
        out = {"c": code}
        try:
            doc = [json.loads(l) for l in raw.splitlines()] if "watch=" in step["p"] and code == 200 else json.loads(raw)
        except ValueError:
            doc = None
        self.note_address(code, sent, doc)
        if step.get("keep") and doc is not None:
            self.kept[step["keep"]] = doc
            if isinstance(at(doc, "/metadata/uid"), str):
                self.uids[doc["metadata"]["uid"]] = f"<uid of {step['keep']}>"
        if doc is None:
            kind = (headers.get("Content-Type") or "").split(";")[0]
            if kind.startswith("text/") or not kind:
                out["b"] = self.word(raw.decode("utf8", "replace"))[:400]
            else:
                out["b"] = f"<{kind}>"
        else:
            if isinstance(doc, list) and "watch=" in step["p"]:
                doc = [e for e in doc if e.get("type") != "BOOKMARK" or at(e, "/object/metadata/annotations")]
            if step.get("pick"):
                doc = {p: at(doc, p) for p in step["pick"]}
            if step.get("strip"):
                doc = without_descriptions(doc)
            out["b"] = self.clean(doc)
        if step.get("type"):
            out["t"] = headers.get("Content-Type")
        w = headers.get_all("Warning") or []
        if w:
            out["w"] = [self.word(x) for x in w]
        return out

    def run(self):
        s = self.server
        try:
            if self.uses_ns:
                s.send("POST", "/api/v1/namespaces", json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.vars["ns"]}}))
            for step in self.story["s"]:
                m, p = step["m"], self.fill(step["p"])
                if m == "DOC":
                    code, doc = s.doc(p)
                    got = at(doc, step["at"], "<absent>") if "at" in step else doc
                    if step.get("keys"):
                        got = sorted(n for n in got if ".example" not in n and "example." not in n) if isinstance(got, dict) else got  # not other stories' definitions
                    self.answers.append({"c": code, "b": without_descriptions(got)})
                    continue
                if m == "UNTIL":
                    end, code = time.monotonic() + step.get("s", 20), 0
                    while True:
                        code, raw, _ = s.send("GET", p)
                        doc = None
                        if code == 200 and "have" in step:
                            try:
                                doc = json.loads(raw)
                            except ValueError:
                                pass
                        met = code == step.get("code", 200) and ("have" not in step or at(doc, step["have"][0]) == step["have"][1])
                        if met or time.monotonic() > end:
                            break
                        time.sleep(0.05)
                    self.answers.append({"c": code, "b": "met" if met else "not met"})
                    continue
                if m == "SLEEP":
                    time.sleep(step["s"])
                    self.answers.append({"c": 0})
                    continue
                data = self.body(step)
                heads = {k: self.fill(v) for k, v in step.get("h", {}).items()}
                try:
                    code, raw, headers = s.send(m, p, data, heads)
                except (OSError, http.client.HTTPException) as e:
                    self.answers.append({"c": 0, "b": f"<{type(e).__name__}>"})
                    continue
                self.answers.append(self.answer(step, code, raw, headers, data))
                self.note(m, p, code, raw)
        finally:
            self.tidy()
        return self.answers

    def note(self, m, p, code, raw):
        if code == 201 and "dryRun" not in p and "/namespaces/" not in p and m in ("POST", "PATCH", "PUT"):
            try:
                name = json.loads(raw)["metadata"]["name"]
            except (ValueError, KeyError, TypeError):
                return
            path = p.split("?")[0]
            self.made.append(path + "/" + name if m == "POST" else path)

    def note_address(self, code, data, doc):
        """Notes whether a Service got, by chance, an address that the story sends in another request."""
        if code < 300:
            self.accepted += data or ""
            address = at(doc, "/spec/clusterIP")
            if isinstance(address, str) and IPV4.fullmatch(address):
                self.coincides |= address in self.asked and address not in self.accepted

    def tidy(self):
        s = self.server
        if self.uses_ns and "{ns}/services" in self.asked:  # where nothing empties namespaces, their addresses and ports would run out
            s.send("DELETE", f"/api/v1/namespaces/{self.vars['ns']}/services")
        todo = list(reversed(self.made)) + ([f"/api/v1/namespaces/{self.vars['ns']}"] if self.uses_ns else [])
        for path in todo:
            try:
                code, raw, _ = s.send("DELETE", path + "?gracePeriodSeconds=0")
                if code < 300 and b'"finalizers"' in raw and not path.startswith("/api/v1/namespaces/") and "customresourcedefinitions" not in path:
                    s.send("PATCH", path, '{"metadata":{"finalizers":null}}', {"Content-Type": "application/merge-patch+json"})
            except (OSError, http.client.HTTPException):
                pass


# ---------------------------------------------------------------- comparing
def is_status(b):
    return isinstance(b, dict) and b.get("kind") == "Status" and "status" in b


def causes(b):
    return sorted(f"{c.get('reason', '')} {c.get('field', '')}" for c in ((b.get("details") or {}).get("causes") or []))


def bare(b):
    """Returns a Status without its wording."""
    b = copy.deepcopy(b)
    b.pop("message", None)
    d = b.get("details")
    if isinstance(d, dict) and "causes" in d:
        d["causes"] = causes(b)
    return b


def wants(story):
    """Returns the recorded responses with complete bodies."""
    out = []
    for w in story["w"]:
        w = dict(w)
        if "d" in w:
            i, changes = w.pop("d")
            w["b"] = patch(out[i]["b"], changes)
        out.append(w)
    return out


def squeeze(answers):
    out, full = [], []
    for i, a in enumerate(answers):
        a = dict(a)
        b = a.get("b")
        if isinstance(b, (dict, list)) and full:
            size = len(json.dumps(b))
            best = None
            for j in full[-3:] + full[:1]:
                d = delta(answers[j]["b"], b)
                n = len(json.dumps(d))
                if n + 20 < size * 0.8 and (best is None or n < best[0]):
                    best = (n, j, d)
            if best:
                if patch(answers[best[1]]["b"], best[2]) == b:
                    a.pop("b")
                    a["d"] = [best[1], best[2]]
        if "b" in a and isinstance(b, dict) and not is_status(b):
            full.append(i)
        out.append(a)
    return out


def short(v, n=70):
    s = json.dumps(v, ensure_ascii=False, sort_keys=True) if not isinstance(v, str) else v
    return s if len(s) <= n else s[: n - 1] + "…"


def general(p):
    return re.sub(r"/\d+(?=/|$)", "/*", p)


def compare(want, got):
    """Returns the aspects in which a response differs: {aspect: difference}."""
    out = {}
    if want["c"] != got["c"]:
        reason = got["b"].get("reason", "") if is_status(got.get("b")) else ""
        wreason = want["b"].get("reason", "") if is_status(want.get("b")) else ""
        out["code"] = f"{want['c']} {wreason} → {got['c']} {reason}".replace("  ", " ").strip()
    wb, gb = want.get("b"), got.get("b")
    if is_status(wb) and is_status(gb):
        if "code" not in out:
            if wb.get("reason") != gb.get("reason"):
                out["reason"] = f"{wb.get('reason')} → {gb.get('reason')}"
            wc, gc = causes(wb), causes(gb)
            if wc != gc:
                lost, more = list((collections.Counter(wc) - collections.Counter(gc)).elements()), list((collections.Counter(gc) - collections.Counter(wc)).elements())
                out["causes"] = ("lacks " + ", ".join(lost) if lost else "") + ("; " if lost and more else "") + ("has besides " + ", ".join(more) if more else "")
            if bare(wb) != bare(gb) and not out:
                out["body"] = "; ".join(sorted(general(c[0]) for c in delta(bare(wb), bare(gb)))[:4])
        if wb.get("message") != gb.get("message") or [c.get("message") for c in (wb.get("details") or {}).get("causes") or []] != [c.get("message") for c in (gb.get("details") or {}).get("causes") or []]:
            out["message"] = f"{short(wb.get('message', ''), 160)} → {short(gb.get('message', ''), 160)}"
    elif wb != gb and "code" not in out and without_column_descriptions(wb) == without_column_descriptions(gb):
        out["message"] = "the descriptions of columns"
    elif wb != gb and "code" not in out:
        wb, gb = without_column_descriptions(wb), without_column_descriptions(gb)
        d = delta(wb, gb) if isinstance(wb, (dict, list)) and type(wb) is type(gb) else [["", gb]]
        seen = []
        for c in d:
            p = general(c[0]) or "(all)"
            word = f"lacks {p}={short(at(wb, c[0]), 40)}" if len(c) == 1 else f"{p}: {short(at(wb, c[0], '∅'), 50)} → {short(c[1], 50)}"
            if word not in seen:
                seen.append(word)
        out["body"] = "; ".join(sorted(seen)[:4]) + (f"; … {len(seen) - 4} more" if len(seen) > 4 else "")
    if want.get("t") != got.get("t"):
        out["type"] = f"{want.get('t')} → {got.get('t')}"
    ww, gw = want.get("w", []), got.get("w", [])
    if len(ww) != len(gw):
        out["warnings"] = f"{len(ww)} → {len(gw)}: {short((ww or gw)[0], 120)}"
    elif ww != gw:
        out["message"] = f"warning: {short(ww, 160)} → {short(gw, 160)}"
    return out


CORE, BODY = ("code", "reason", "causes"), ("code", "reason", "causes", "body", "type", "warnings")


def class_of(story, step, diff):
    """Returns a difference's class: its place and kind, without indices, values and the request."""
    for a in BODY + ("message",):
        if a in diff:
            text = diff[a]
            if a == "causes":
                text = re.sub(r"(Field\w+) \S*", r"\1", text)
                text = "; ".join(t.split(" Field")[0] + " " + ", ".join(sorted(set(re.findall(r"Field\w+", t)))) for t in text.split("; "))
            elif a == "body":
                text = "; ".join(sorted({re.sub(r"^lacks ", "-", re.split(r"=|: |; ", t)[0]) for t in text.split("; ") if t.startswith(("/", "lacks /"))})[:3]) or text[:80]
            elif a == "message":
                text = "wording"
            elif a == "warnings":
                text = text.split(":")[0]
            return (story["t"], story.get("f", ""), a, text)


# ---------------------------------------------------------------- commands
def read(paths):
    for p in paths:
        with (lzma.open if p.endswith(".xz") else open)(p, "rt", encoding="utf-8") as f:
            for line in f:
                if line.strip():
                    yield json.loads(line)


def play_all(server, stories, jobs, each):
    todo, lock, done = collections.deque(stories), threading.Lock(), [0]
    # CRD stories first, because they wait longest
    def work():
        while True:
            with lock:
                if not todo:
                    return
                story = todo.popleft()
            for _ in range(TRIES):
                p = Play(server, story)
                try:
                    answers = p.run()
                except Exception as e:
                    answers = [{"c": 0, "b": f"<{type(e).__name__}: {e}>"} for _ in story["s"]]
                if not p.coincides:
                    break
            with lock:
                done[0] += 1
                each(story, answers)
    threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    [t.start() for t in threads]
    [t.join() for t in threads]


def parallel(args, stories, jobs, procs):
    """Plays the stories in several processes with several threads each; yields (story, answers)."""
    import multiprocessing as mp
    stories = sorted(stories, key=lambda s: (s["t"] != "crd", s["t"] != "watch"))
    if procs <= 1:
        out = []
        play_all(Server(args), stories, jobs, lambda s, a: out.append((s, a)))
        return out
    ctx = mp.get_context("fork")
    q = ctx.Queue()
    ps = []
    for i in range(procs):
        mine = stories[i::procs]
        def go(mine=mine, i=i):
            batch = []
            index = {id(s): n for n, s in enumerate(mine)}
            play_all(Server(args), mine, max(1, jobs // procs), lambda s, a: batch.append((index[id(s)], a)))
            q.put((i, batch))
        p = ctx.Process(target=go)
        p.start()
        ps.append(p)
    out = []
    for _ in ps:
        i, batch = q.get()
        mine = stories[i::procs]
        out += [(mine[n], a) for n, a in batch]
    [p.join() for p in ps]
    return out


def record(args):
    stories = list(read(args.files))
    res = parallel(args, stories, args.jobs, args.procs)
    with open(args.output, "w") as f:
        for s, a in sorted(res, key=lambda x: x[0]["id"]):
            s["w"] = squeeze(a)
            f.write(json.dumps(s, separators=(",", ":"), ensure_ascii=False) + "\n")
    print(f"{len(res)} stories recorded")


def table(title, rows):
    print(f"\n{title:<34}{'requests':>9}{'core equal':>12}{'body equal':>12}{'all equal':>11}")
    for name, n, core, body, all_ in rows:
        print(f"{name[:33]:<34}{n:>9}{core / n:>11.1%} {body / n:>11.1%} {all_ / n:>10.1%}")


def check(args):
    stories = [s for s in read(args.files) if (not args.only or re.search(args.only, s["id"]))]
    if args.sample:
        stories = random.Random(args.seed).sample(stories, min(args.sample, len(stories)))
    begin = time.monotonic()
    # Some answers depend on the roles and bindings of other stories: the reason of a review names the rule that allows or fails,
    # and a refusal of the user whom stories bind to missing roles names those.
    def depends_on_bindings(story):
        users = [step.get("h", {}).get("Impersonate-User") for step in story["s"]]
        return re.search("(Access|Rules)Review$", story["k"]) or "nobody" in users
    others, last = [s for s in stories if not depends_on_bindings(s)], [s for s in stories if depends_on_bindings(s)]
    res = parallel(args, others, args.jobs, args.procs) + parallel(args, last, args.jobs, args.procs)
    took = time.monotonic() - begin
    classes, wording = {}, {}
    kinds = collections.defaultdict(lambda: [0, 0, 0, 0])
    themes = collections.defaultdict(lambda: [0, 0, 0, 0])
    green = 0
    diffs = []
    for story, answers in sorted(res, key=lambda x: x[0]["id"]):
        ok = True
        for i, (step, want, got) in enumerate(zip(story["s"], wants(story), answers)):
            d = compare(want, got)
            if step.get("nm"):
                d.pop("message", None)
            core, body = not any(a in d for a in CORE), not any(a in d for a in BODY)
            ok &= body
            if not step.get("setup"):
                for t in (kinds[story["k"]], themes[story["t"]]):
                    t[0] += 1
                    t[1] += core
                    t[2] += body
                    t[3] += not d
            if d:
                c = class_of(story, step, d)
                target = wording if c[2] == "message" else classes
                e = target.setdefault(c, {"n": 0, "kinds": collections.Counter(), "labels": collections.Counter(), "example": f"{story['id']}#{i}", "what": d})
                e["n"] += 1
                e["labels"][step.get("l", step["m"])] += 1
                e["kinds"][story["k"]] += 1
                diffs.append({"id": story["id"], "step": i, "label": step.get("l", step["m"]), "diff": d, "kind": story["k"], "theme": story["t"], "field": story.get("f", ""), "class": list(c)})
        green += ok
    if not args.quiet:
        shown = sorted(classes.items(), key=lambda x: (-x[1]["n"], x[0]))
        for c, e in shown[: args.limit]:
            names = ", ".join(k for k, _ in e["kinds"].most_common(6))
            print(f"{e['n']:>5}  [{c[0]}] {c[1]} · {c[2]}: {short(c[3], 200)}\n       by: {short(', '.join(e['labels']), 120)}\n       {names}   e.g. {e['example']}")
        if len(shown) > args.limit:
            print(f"       … {len(shown) - args.limit} more classes (--limit)")
        if args.messages:
            for c, e in sorted(wording.items(), key=lambda x: -x[1]["n"])[: args.limit]:
                print(f"{e['n']:>5}  wording [{c[0]}] {c[1]}: {e['what']['message']}   e.g. {e['example']}")
    if args.json:
        with open(args.json, "w") as f:
            for d in diffs:
                f.write(json.dumps(d, ensure_ascii=False) + "\n")
    if not args.quiet or args.tables:
        table("kind", [(k, *v) for k, v in sorted(kinds.items())if v[0]])
        table("theme", [(k, *v) for k, v in sorted(themes.items()) if v[0]])
    tot = [sum(v[i] for v in themes.values()) for i in range(4)]
    print(f"\n{len(res)} stories in {took:.0f} s, {green} equal ({green / max(1, len(res)):.1%}); {tot[0]} requests: "
          f"core equal {tot[1] / max(1, tot[0]):.2%}, body equal {tot[2] / max(1, tot[0]):.2%}, wording too {tot[3] / max(1, tot[0]):.2%}; "
          f"{len(classes)} classes of differences, {len(wording)} of wording alone")
    sys.exit(green != len(res))


def settle(args):
    """Drops stories to which the recording server itself does not respond the same way twice, and splits the rest into two halves."""
    stories = {s["id"]: s for s in read(args.files)}
    for n in range(args.rounds):
        dropped, loose = 0, 0
        for story, answers in parallel(args, list(stories.values()), args.jobs, args.procs):
            for i, (step, want, got) in enumerate(zip(story["s"], wants(story), answers)):
                d = compare(want, got)
                if any(a in d for a in BODY):
                    if stories.pop(story["id"], None):
                        dropped += 1
                        print("dropped", story["id"], i, {a: short(d[a], 150) for a in d if a in BODY})
                elif "message" in d and not stories.get(story["id"], story)["s"][i].get("nm"):
                    loose += 1
                    if story["id"] in stories:
                        stories[story["id"]]["s"][i]["nm"] = 1
        print(f"round {n + 1}: {dropped} stories dropped, {loose} answers whose wording changes")
    ids = sorted(stories)
    random.Random(args.seed).shuffle(ids)
    for name, half in (("open", ids[: len(ids) // 2]), ("kept", ids[len(ids) // 2:])):
        with open(f"{args.output}-{name}.jsonl", "w") as f:
            for i in sorted(half):
                f.write(json.dumps(stories[i], separators=(",", ":"), ensure_ascii=False) + "\n")
        print(f"{args.output}-{name}.jsonl: {len(half)} stories, {os.path.getsize(args.output + '-' + name + '.jsonl') / 1e6:.1f} MB")


def show(args):
    for s in read(args.files):
        if s["id"] == args.id:
            print(json.dumps({**s, "w": wants(s)} if "w" in s else s, indent=1, ensure_ascii=False))
            return
    sys.exit("no such story")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = ap.add_subparsers(dest="cmd", required=True)
    for name in ("check", "record", "settle", "show"):
        p = sub.add_parser(name)
        if name == "show":
            p.add_argument("id")
        else:
            p.add_argument("--server", required=True)
            p.add_argument("--token", default=os.environ.get("APIDIFF_TOKEN"))
            p.add_argument("--ca")
            p.add_argument("--insecure", action="store_true")
            p.add_argument("--jobs", type=int, default=8)
            p.add_argument("--procs", type=int, default=2)
        if name in ("record", "settle"):
            p.add_argument("-o", "--output", required=True)
        if name == "settle":
            p.add_argument("--rounds", type=int, default=1)
            p.add_argument("--seed", type=int, default=1)
        if name == "check":
            p.add_argument("--only", help="a regular expression that the story's id must match")
            p.add_argument("--sample", type=int, help="only so many stories, drawn by --seed")
            p.add_argument("--seed", type=int, default=1)
            p.add_argument("--limit", type=int, default=60, help="how many classes are printed")
            p.add_argument("--messages", action="store_true", help="print differences in wording, too")
            p.add_argument("--json", help="write every difference to this file")
            p.add_argument("--quiet", action="store_true", help="the last line only")
            p.add_argument("--tables", action="store_true")
        p.add_argument("files", nargs="+")
    a = ap.parse_args()
    {"check": check, "record": record, "settle": settle, "show": show}[a.cmd](a)


if __name__ == "__main__":
    main()
