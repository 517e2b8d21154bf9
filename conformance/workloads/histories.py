#!/usr/bin/env python3
"""Plays the scenarios of scenarios.py on a server with workload controllers and compares the histories of all objects.

    histories.py play   [--settle] --server URL --token T NAME...  (writes to --into DIR)
    histories.py check  [--settle] --server URL --token T NAME...  (compares with histories/NAME.json)
    histories.py merge  DIR...                                     (makes histories/NAME.json of several recordings)

A scenario consists of steps. In each, the script acts as user, scheduler and kubelet, then waits until nothing changes any more:
for two seconds (a foreign controller manager), or as long as POST /kubegc/v1/settle takes (--settle; then waiting means to set
the clock of the server ahead). A history has, for each step and object, the versions of the object as changes of fields.

Generated names, UIDs, addresses of pods, times (as the number of their step, @3) and the minutes in names of Jobs are
normalised; objects that differ in nothing but a generated name are compared as a multiset. A recorded object has its
"versions" where all recordings agree, the sum of its changes ("end") where they agree in no more, or all that were recorded
("any"). A difference in the sums is printed as "differs", one in the order of values on the way as "order".
Needs Python 3.9 and nothing else.
"""
import argparse, contextlib, datetime, difflib, http.client, json, os, pathlib, re, ssl, sys, threading, time, traceback
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

HERE = pathlib.Path(__file__).resolve().parent
GROUPS = {
    "/api/v1": ["Pod", "Service", "Endpoints", "PersistentVolumeClaim", "PersistentVolume", "ReplicationController", "ResourceQuota",
                "Event", "Node", "ConfigMap", "ServiceAccount", "Namespace"],
    "/apis/apps/v1": ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ControllerRevision"],
    "/apis/batch/v1": ["Job", "CronJob"],
    "/apis/discovery.k8s.io/v1": ["EndpointSlice"],
    "/apis/policy/v1": ["PodDisruptionBudget"],
    "/apis/storage.k8s.io/v1": ["StorageClass"],
}
PREFIX = {kind: prefix for prefix, kinds in GROUPS.items() for kind in kinds}
CLUSTER_WIDE = {"PersistentVolume", "Node", "Namespace", "StorageClass"}
UNWATCHED = {"StorageClass", "Namespace"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
LOCAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([+-]\d\d:\d\d)")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
MINUTES = re.compile(r"(?<=-)[23]\d{7}\b")
RANDOM = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5}")
UNCREATED = re.compile(r"(?<=\")([\w.-]+-)[bcdfghjklmnpqrstvwxz2456789]{5}(?=\")")
ADDRESS = re.compile(r"\b10\.99\.\d+\.\d+\b")
QUIET_SECONDS = 4  # the Job controller waits for a second, for more pods to end
LONGEST_STEP_SECONDS = 90
SETTLINGS = 3
NOTHING = {"versions": [], "end": []}
# Fields that every server defaults in the same way, and that no controller sets.
DEFAULTS = {
    "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "dnsPolicy", "schedulerName", "securityContext",
    "enableServiceLinks", "preemptionPolicy", "priority", "clusterIP", "clusterIPs", "sessionAffinity", "ipFamilies", "ipFamilyPolicy",
    "internalTrafficPolicy", "lastPhaseTransitionTime",
}


def plural(kind):
    return kind.lower() + {"Endpoints": "", "StorageClass": "es"}.get(kind, "s")


class Server:
    """Requests to a server; one connection per thread."""

    def __init__(self, url, token, settle):
        self.url, self.token, self.settle = urlsplit(url), token, settle
        self.tls = ssl._create_unverified_context()
        self.local, self.ahead = threading.local(), None

    def open(self, timeout=60):
        return http.client.HTTPSConnection(self.url.hostname, self.url.port, context=self.tls, timeout=timeout)

    def headers(self, kind="application/json"):
        return {"Accept": "application/json", "Authorization": "Bearer " + self.token, "Content-Type": kind}

    def send(self, method, path, body=None, kind="application/json"):
        body = None if body is None else json.dumps(body)
        for attempt in range(3):
            if getattr(self.local, "conn", None) is None:
                self.local.conn = self.open()
            try:
                self.local.conn.request(method, path, body, self.headers(kind))
                answer = self.local.conn.getresponse()
                raw = answer.read()
                return answer.status, json.loads(raw) if raw[:1] in b"{[" else raw.decode()
            except (http.client.HTTPException, OSError):
                self.local.conn = None
                if attempt == 2:
                    raise

    def ask(self, method, path, body=None, kind="application/json", allow=()):
        code, answer = self.send(method, path, body, kind)
        if code >= 300 and code not in allow:
            raise RuntimeError(f"{method} {path}: {code} {answer.get('message', answer) if isinstance(answer, dict) else answer}")
        return answer

    def now(self):
        if self.settle and self.ahead is None:
            # Do not compute this from the server's time, because a busy machine responds late.
            self.ahead = duration(self.ask("GET", "/kubegc/v1/clock")["ahead"])
        now = datetime.datetime.now(datetime.timezone.utc)
        return now + self.ahead if self.settle else now

    def pass_time(self, seconds):
        if self.settle:
            self.ask("POST", f"/kubegc/v1/clock?advance={int(seconds * 1000)}ms")
            self.ahead = None
        else:
            time.sleep(seconds)


def duration(text):
    """Parses a Go duration such as 1h2m3.5s."""
    units = {"h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
    parts = re.findall(r"([\d.]+)(ms|h|m|s)", text)
    return datetime.timedelta(**{units[unit]: float(number) for number, unit in parts})


def parse(text):
    text = text.replace("Z", "+00:00")
    if "." in text:
        head, _, tail = text.partition(".")
        text = f"{head}.{tail[:-6][:6].ljust(6, '0')}+00:00"
    return datetime.datetime.fromisoformat(text)


def stamp(at, micro=False):
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def path_of(kind, namespace=None, name=None, sub=None):
    path = PREFIX[kind]
    if namespace and kind not in CLUSTER_WIDE:
        path += f"/namespaces/{namespace}"
    path += "/" + plural(kind)
    return "/".join(part for part in (path, name, sub) if part)


class Observer:
    """Watches every kind in all namespaces, and passes each event to the scenario that it belongs to."""

    def __init__(self, server):
        self.server, self.sinks, self.lock = server, {}, threading.Lock()
        for kind in PREFIX:
            if kind not in UNWATCHED:
                listed = server.ask("GET", path_of(kind))["metadata"]["resourceVersion"]
                threading.Thread(target=self.watch, args=(kind, listed), daemon=True).start()

    def watch(self, kind, version):
        while True:
            conn = self.server.open(timeout=3600)
            conn.request("GET", f"{path_of(kind)}?watch=true&resourceVersion={version}", headers=self.server.headers())
            answer = conn.getresponse()
            with contextlib.suppress(OSError, http.client.HTTPException):
                while line := answer.readline():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        print("watch of", kind, event, file=sys.stderr)
                        continue
                    meta = event["object"]["metadata"]
                    version = meta["resourceVersion"]
                    event["object"]["kind"] = kind
                    namespace = meta.get("namespace") or meta["name"].partition(".")[0]
                    if kind == "Event" and event["object"]["involvedObject"].get("namespace") is None:
                        namespace = event["object"]["involvedObject"]["name"].partition(".")[0]
                    with self.lock:
                        sink = self.sinks.get(namespace)
                    if sink:
                        sink.see(event["type"], event["object"])


def flat(value, path="", out=None):
    """Returns the leaves of a document by their paths, with conditions by their types."""
    out = {} if out is None else out
    if isinstance(value, dict) and value:
        for key, part in value.items():
            if key not in DEFAULTS:
                flat(part, f"{path}.{key}" if path else key, out)
    elif isinstance(value, list) and value:
        for place, part in enumerate(value):
            key = part["type"] if path.endswith("conditions") and isinstance(part, dict) and "type" in part else place
            flat(part, f"{path}[{key}]", out)
    else:
        out[path] = value
    return out


class Play:
    """One running scenario."""

    def __init__(self, server, observer, name):
        self.server, self.ns, self.lock = server, name, threading.Lock()
        self.seen, self.versions, self.latest = [], {}, time.monotonic()
        self.order = {}  # Creation times have seconds; what was created first was seen first.
        self.scripted, self.names, self.uids, self.minutes = set(), {}, {}, []
        self.real_begins, self.server_times, self.exact = [], {}, False
        self.begins, self.steps, self.known, self.addresses = [], [], {}, 0
        observer.sinks[name] = self
        if server.settle:
            server.ahead = server.ask("POST", "/kubegc/v1/clock?ahead=0s") and None  # Other clients' times are those of the server.
        self.observer = observer
        server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    # Called by the observer.
    def see(self, what, value):
        with self.lock:
            self.latest = time.monotonic()
            self.seen.append((what, value))
            key = (value["kind"], value["metadata"]["name"])
            self.order.setdefault(key, len(self.order))
            self.versions[key] = None if what == "DELETED" else value["metadata"]["resourceVersion"]

    # Called by scenarios.
    @contextlib.contextmanager
    def step(self, title):
        if not self.begins:
            self.rest()  # What every namespace and node gets is no part of the history.
        if self.server.settle and not self.exact:
            # Far enough from the server's own time, which some fields contain, to tell the two apart.
            self.server.pass_time(3 if self.begins else 30)
        self.exact = False
        self.begins.append(self.server.now())
        self.real_begins.append(datetime.datetime.now(datetime.timezone.utc))
        with self.lock:
            self.seen = []
        yield
        self.rest()
        with self.lock:
            seen, self.seen = self.seen, []
        self.steps.append({"step": title, "objects": self.digest(seen)})

    def rest(self):
        deadline = time.monotonic() + LONGEST_STEP_SECONDS
        if not self.server.settle:
            time.sleep(0.3)
            while time.monotonic() - self.latest < QUIET_SECONDS and time.monotonic() < deadline:
                time.sleep(0.05)
            return
        # The server considers 20 ms without a change as settled; on a busy machine, a change may take longer to arrive.
        for _ in range(SETTLINGS):
            self.server.ask("POST", "/kubegc/v1/settle?timeout=50s")
        # The watches are complete once they have shown everything that the lists contain now.
        behind = set(PREFIX) - UNWATCHED
        while behind and time.monotonic() < deadline:
            behind = {kind for kind in behind if not self.is_current(kind)}
            if behind:
                time.sleep(0.01)

    def is_current(self, kind):
        listed = self.server.ask("GET", path_of(kind, self.ns))["items"]
        mine = lambda meta: kind not in CLUSTER_WIDE or meta["name"].partition(".")[0] == self.ns
        now = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in listed if mine(one["metadata"])}
        with self.lock:
            seen = {name: version for (of, name), version in self.versions.items() if of == kind and version}
        return all(seen.get(name) == version for name, version in now.items()) and not (set(seen) - set(now))

    def wait(self, seconds):
        """Lets time pass, and waits for everything that becomes due."""
        self.server.pass_time(seconds)
        if self.server.settle:
            self.rest()

    def react(self):
        """Lets the controllers react to a kubelet's writes, if the script can wait for them. A real kubelet's pods do not start in
        the same millisecond; whether a controller observes two of them together or separately would depend on the machine."""
        if self.server.settle:
            self.server.ask("POST", "/kubegc/v1/settle?timeout=50s")

    def begin_in_minute(self):
        """Waits until a minute has just begun or, if the clock can be set, is not about to end."""
        if self.server.settle:
            self.rest()
            self.exact = True
            while datetime.datetime.now().second not in range(1, 54):
                time.sleep(0.1)
        else:
            self.until_minute()

    def until_minute(self):
        """Lets time pass until two seconds after the next full minute."""
        now = self.server.now()
        self.server.pass_time(62 - now.second - now.microsecond / 1e6)

    def now(self, seconds=0):
        return stamp(self.server.now() + datetime.timedelta(seconds=seconds))

    def create(self, *objects):
        for one in objects:
            one = dict(one)
            one.setdefault("apiVersion", PREFIX[one["kind"]].split("/", 2)[2])
            self.scripted.add((one["kind"], one["metadata"]["name"]))
            self.server.ask("POST", path_of(one["kind"], self.ns), one)

    def get(self, kind, name, allow=()):
        return self.server.ask("GET", path_of(kind, self.ns, name), allow=allow)

    def list(self, kind, **labels):
        wanted = ",".join(f"{key}={value}" for key, value in labels.items())
        items = self.server.ask("GET", path_of(kind, self.ns) + ("?labelSelector=" + wanted if wanted else ""))["items"]
        with self.lock:
            order = dict(self.order)
        place = lambda meta: order.get((kind, meta["name"]), len(order))
        return sorted(items, key=lambda one: (one["metadata"]["creationTimestamp"], place(one["metadata"]), one["metadata"]["name"]))

    def patch(self, kind, name, patch, sub=None, allow=()):
        return self.server.ask("PATCH", path_of(kind, self.ns, name, sub), patch, "application/merge-patch+json", allow)

    def json_patch(self, kind, name, *operations):
        self.server.ask("PATCH", path_of(kind, self.ns, name), list(operations), "application/json-patch+json")

    def delete(self, kind, name, policy="Background", grace=None):
        options = {"propagationPolicy": policy}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        self.server.ask("DELETE", path_of(kind, self.ns, name), options)

    def node(self, name, labels=None, taints=None, unschedulable=False):
        """Registers a ready node, named after the scenario."""
        name = f"{self.ns}.{name}"
        self.names[name] = self.ns + ".*"
        self.create({"kind": "Node", "metadata": {"name": name, "labels": {"scenario": self.ns, **(labels or {})}},
                     "spec": {"taints": taints or [], "unschedulable": unschedulable}})
        room = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        self.patch("Node", name, {"status": {"capacity": room, "allocatable": room, "conditions": [self.condition("Ready", "KubeletReady")]}}, "status")
        # The server taints a new node until its controllers know that it is ready.
        self.patch("Node", name, {"spec": {"taints": taints or None}})

    def condition(self, kind, reason=None, status="True"):
        one = {"type": kind, "status": status, "lastTransitionTime": self.now()}
        return {**one, "reason": reason} if reason else one

    def pods(self, test=None, **labels):
        found = self.list("Pod", **labels)
        return [pod for pod in found if test is None or test(pod)]

    def index(self, number, test=None):
        """Returns the first pod of an index of an indexed Job."""
        return self.pods(test, **{"batch.kubernetes.io/job-completion-index": str(number)})[0]

    def run(self, ready=True, count=None, **labels):
        """Binds the pods without a node, and lets them start."""
        fresh = self.pods(lambda pod: pod.get("status", {}).get("phase") == "Pending" and "deletionTimestamp" not in pod["metadata"], **labels)
        for pod in fresh[:count]:
            self.start(pod, ready)

    def start(self, pod, ready=True):
        name = pod["metadata"]["name"]
        if not pod["spec"].get("nodeName"):
            fields = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
            terms = [field for term in fields.get("nodeSelectorTerms", []) for field in term.get("matchFields", [])]
            node = terms[0]["values"][0] if terms else f"{self.ns}.a"
            self.server.ask("POST", path_of("Pod", self.ns, name, "binding"),
                            {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node}}, allow=(404,))
        self.addresses += 1
        address = f"10.99.{self.addresses // 250}.{self.addresses % 250 + 1}"
        state = "True" if ready else "False"
        containers = [{"name": one["name"], "image": one["image"], "imageID": "", "ready": ready, "started": True, "restartCount": 0,
                       "state": {"running": {"startedAt": self.now()}}} for one in pod["spec"]["containers"]]
        conditions = [self.condition("PodScheduled"), self.condition("Ready", status=state), self.condition("ContainersReady", status=state)]
        self.patch("Pod", name, {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "hostIP": "10.98.0.1", "startTime": self.now(),
                                            "conditions": conditions, "containerStatuses": containers}}, "status", allow=(404,))  # It may be deleted meanwhile.
        self.react()

    def ready(self, pod, ready):
        """Changes whether a running pod is ready."""
        state = "True" if ready else "False"
        conditions = [self.condition(kind, status=state if kind != "PodScheduled" else "True") for kind in ("PodScheduled", "Ready", "ContainersReady")]
        self.patch("Pod", pod["metadata"]["name"], {"status": {"conditions": conditions}}, "status")
        self.react()

    def finish(self, pod, code=0, conditions=()):
        """Ends a pod's containers."""
        ended = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "startedAt": self.now(), "finishedAt": self.now()}}
        containers = [{"name": one["name"], "image": one["image"], "imageID": "", "ready": False, "started": False, "restartCount": 0, "state": ended}
                      for one in pod["spec"]["containers"]]
        both = [self.condition("Ready", "PodCompleted", "False"), self.condition("ContainersReady", "PodCompleted", "False"), self.condition("PodScheduled")]
        self.patch("Pod", pod["metadata"]["name"], {"status": {"phase": "Failed" if code else "Succeeded", "containerStatuses": containers,
                                                               "conditions": both + list(conditions)}}, "status")
        self.react()

    def reap(self):
        """Ends the pods that are being deleted, as a kubelet does."""
        for pod in self.pods(lambda pod: "deletionTimestamp" in pod["metadata"]):
            if pod["status"].get("phase") in ("Running", "Pending") and pod["metadata"].get("finalizers"):
                self.finish(pod, 143)
            self.server.ask("DELETE", path_of("Pod", self.ns, pod["metadata"]["name"]),
                            {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}, allow=(404, 409))
            self.react()

    def end(self):
        self.observer.sinks.pop(self.ns, None)
        for node in [name for kind, name in self.scripted if kind in CLUSTER_WIDE]:
            for kind in ("Node", "PersistentVolume", "StorageClass"):
                self.server.ask("DELETE", path_of(kind, None, node), allow=(404,))
        for pod in self.pods():
            self.server.send("DELETE", path_of("Pod", self.ns, pod["metadata"]["name"]), {"gracePeriodSeconds": 0})
        self.server.ask("DELETE", f"/api/v1/namespaces/{self.ns}", allow=(404,))

    # Normalising.
    def learn(self, value):
        meta = value["metadata"]
        generated = meta.get("generateName")
        if generated and RANDOM.fullmatch(meta["name"][len(generated):]):
            self.names[meta["name"]] = generated + "*"
        self.uids[meta["uid"]] = MINUTES.sub(self.minute, f"<{value['kind']} {self.names.get(meta['name'], meta['name'])}>")

    def text(self, text):
        if text in self.uids:
            return self.uids[text]
        if TIME.fullmatch(text):
            at = parse(text) + datetime.timedelta(seconds=0 if "." in text else 0.999)
            past = [number for number, begin in enumerate(self.begins) if begin <= at]
            if not past and at >= self.real_begins[0]:
                # A time from the server's own clock, which is not ahead: it belongs to the step in which it first appeared.
                return self.server_times.setdefault(text, f"@{len(self.begins) - 1}")
            ahead = (at - self.begins[-1]).total_seconds()
            return "@past" if not past else f"@{past[-1]}" if ahead < 75 else "@future"
        if text.startswith("-----BEGIN CERTIFICATE"):
            return "<certificate>"
        text = UUID.sub(lambda found: self.uids.get(found[0], "<uid>"), text)
        for name in sorted(self.names, key=len, reverse=True):
            if name in text:
                text = text.replace(name, self.names[name])
        text = LOCAL_TIME.sub(r"<time>\1", text)
        text = UNCREATED.sub(r"\1*", text)
        text = TIME.sub("<time>", ADDRESS.sub("<ip>", text)).replace(self.ns, "{ns}")
        return MINUTES.sub(self.minute, text)

    def minute(self, found):
        self.minutes.append(int(found[0]))
        return f"<minute+{int(found[0]) - self.minutes[0]}>"

    def clean(self, value):
        if isinstance(value, dict):
            return {self.text(key): self.clean(part) for key, part in value.items() if part is not None}
        if isinstance(value, list):
            cleaned = [self.clean(part) for part in value]
            # A set, so its order does not matter.
            return sorted(cleaned, key=json.dumps) if value and isinstance(value[0], dict) and any(key in value[0] for key in ("addresses", "ip", "port")) else cleaned
        return self.text(value) if isinstance(value, str) else value

    def normalise(self, value):
        value, meta = dict(value), value["metadata"]
        kind = value.pop("kind")
        value.pop("apiVersion", None)
        if kind == "Event":
            about = value["involvedObject"]
            self.uids.setdefault(about.get("uid", ""), "<uid>")
            name = f"{about['kind']}/{self.text(about['name'])} {value['type']} {value['reason']}: {self.text(value['message'])}"
            kept = {key: value[key] for key in ("count", "source", "reportingComponent", "action") if value.get(key)}
            if value["type"] == "Warning":
                kept.pop("count", None)  # How often something was tried again depends on the time that it took.
            kept["involvedObject"] = {key: about[key] for key in ("apiVersion", "fieldPath") if key in about}
            return (kind, name), flat(self.clean(kept))
        kept = {key: meta[key] for key in ("labels", "annotations", "ownerReferences", "finalizers", "generation", "generateName", "deletionGracePeriodSeconds") if key in meta}
        if "deletionTimestamp" in meta:
            kept["deleting"] = True
        managers = {f"{one['manager']} {one['operation']}" + (f" {one['subresource']}" if "subresource" in one else "") for one in meta.get("managedFields", [])}
        for manager in managers:
            if not manager.lower().startswith(("python", "unknown")):
                kept.setdefault("managers", {})[manager] = True
        value["metadata"] = kept or None
        if kind == "CronJob":
            value["status"] = {**value["status"], "active": [{**one, "resourceVersion": None} for one in value["status"].get("active", [])] or None}
        if isinstance(value.get("spec"), dict) and "claimRef" in value["spec"]:
            value["spec"] = {**value["spec"], "claimRef": {key: part for key, part in value["spec"]["claimRef"].items() if key != "resourceVersion"}}
        if kind in ("Pod", "Node"):
            told = [one for one in value["status"].get("conditions", []) if one["type"] in ("DisruptionTarget",)]
            value["status"] = {"phase": value["status"].get("phase"), **({"conditions": told} if told else {})}
            value["spec"] = {key: part for key, part in value["spec"].items() if key != "nodeName"}
        fields = flat(self.clean(value))
        # Admission gives every pod the same two tolerations.
        usual = tuple(path[: -len("tolerationSeconds")] for path, part in fields.items() if path.endswith("tolerationSeconds") and part == 300)
        return (kind, self.text(meta["name"])), {path: part for path, part in fields.items() if not usual or not path.startswith(usual)}

    def digest(self, seen):
        """Returns, for each object that changed in a step, the multisets of its instances' versions and of the sums of their changes."""
        for _, value in seen:
            self.learn(value)
        versions, start, end, keys = defaultdict(list), {}, {}, {}
        for what, value in seen:
            uid = value["metadata"]["uid"]
            if value["kind"] == "Event" and value["message"].startswith("(combined from similar events)"):
                continue  # As above.
            (kind, name), fields = self.normalise(value)
            keys[uid] = f"{kind} {name}"
            before = self.known.get(uid)
            if before is None and (kind, value["metadata"]["name"]) in self.scripted:
                before = {path: part for path, part in fields.items() if not path.startswith("status")}
            start.setdefault(uid, before or {})
            if what == "DELETED":
                self.known.pop(uid, None)
                versions[uid].append("gone")
                end[uid] = None
                continue
            self.known[uid] = end[uid] = fields
            versions[uid].append(changes(before or {}, fields))
        step = defaultdict(lambda: ([], []))
        for uid, all_ in versions.items():
            all_ = [one for one in all_ if one]
            if all_:
                step[keys[uid]][0].append(all_)
                step[keys[uid]][1].append("gone" if end[uid] is None else changes(start[uid], end[uid]))
        # The number of failed attempts depends on timing.
        sets = {key: [[one for place, one in enumerate(list_) if one not in list_[:place] or " Warning " not in key] for list_ in both] for key, both in step.items()}
        return {key: {"versions": counted(both[0]), "end": counted(both[1])} for key, both in sorted(sets.items())}


def changes(before, after):
    """Returns the fields that differ; null for those that are gone."""
    change = {path: part for path, part in after.items() if path not in before or before[path] != part}
    return {**change, **{path: None for path in before if path not in after}}


def counted(values):
    """Returns a multiset: each value once, with its number of occurrences."""
    texts = Counter(json.dumps(value, sort_keys=True) for value in values)
    return [[count, json.loads(text)] for text, count in sorted(texts.items())]


def play(server, observer, name, script):
    game = Play(server, observer, name)
    try:
        script(game)
        return {"title": (script.__doc__ or "").strip(), "steps": game.steps}
    finally:
        game.end()


def merge(recordings):
    """Merges several histories into what all agree on. Of recordings with different steps, keeps the most similar ones."""
    steps = Counter(tuple(step["step"] for step in recording["steps"]) for recording in recordings)
    usual = steps.most_common(1)[0][0]
    recordings = [recording for recording in recordings if tuple(step["step"] for step in recording["steps"]) == usual]
    first, out = recordings[0], []
    for number, step in enumerate(first["steps"]):
        objects = {}
        of = [recording["steps"][number]["objects"] for recording in recordings]
        for key in sorted({key for one in of for key in one}):
            values = [one.get(key, NOTHING) for one in of]
            ends = [value["end"] for value in values]
            if all(value["versions"] == values[0]["versions"] for value in values):
                objects[key] = {"versions": values[0]["versions"]}
                if any(len(all_) > 1 for _, all_ in values[0]["versions"]):
                    objects[key]["end"] = ends[0]
            elif all(end == ends[0] for end in ends):
                objects[key] = {"end": ends[0]}
            else:
                objects[key] = {"any": [end for place, end in enumerate(ends) if end not in ends[:place]]}
        out.append({"step": step["step"], "objects": objects})
    return {"title": first["title"], "steps": out}


def values_by_field(versions):
    fields = defaultdict(list)
    for one in versions:
        for path, part in ({"gone": True} if one == "gone" else one).items():
            fields[path].append(part)
    return fields


def is_part(short, long):
    """Reports whether one list is the other with some items left out."""
    rest = iter(long)
    return all(any(part == other for other in rest) for part in short)


def are_ordered_otherwise(wanted, got, certain):
    """Reports whether a field of an object takes other values than recorded, or in another order. Timing
    decides how many changes of pods become one change of a counter: values may be left out, and counters on their way up or down may
    have others. With `certain`, counters may have any values on their way, as they do on a busy machine."""
    if len(wanted) != 1 or len(got) != 1 or wanted[0][0] != 1 or got[0][0] != 1:
        return False
    left, right = values_by_field(wanted[0][1]), values_by_field(got[0][1])
    for path in set(left) | set(right):
        a, b = left.get(path, []), right.get(path, [])
        counts = [[part or 0 for part in values] for values in (a, b)]
        if all(type(part) is int for values in counts for part in values):
            rising, falling = (all(values == sorted(values, reverse=down) for values in counts) for down in (False, True))
            if certain or rising or falling or is_part(a, b):
                continue
        if not is_part(b, a):
            return True
    return False


def comparable(key, ends, certain):
    """Returns the sums of changes without the part that depends on the machine's speed: the number of writes of an EndpointSlice."""
    if not (certain and key.startswith("EndpointSlice ")):
        return ends
    keep = lambda end: {path: part for path, part in end.items() if path != "metadata.generation"} if isinstance(end, dict) else end
    return [[count, keep(end)] for count, end in ends if keep(end)]


def differences(golden, played, certain=False):
    """Returns the differences between the played and the recorded history, as (kind, step, object, lines of a diff).
    The kind is "differs", or "order" if the sums of a step's changes are equal and only the order of an object's changes differs."""
    found = []
    for number, step in enumerate(golden["steps"]):
        have = played["steps"][number]["objects"] if number < len(played["steps"]) else {}
        for key in sorted(set(step["objects"]) | set(have)):
            wanted, got = step["objects"].get(key, {"end": []}), have.get(key, NOTHING)
            # One version is its own sum.
            ends = wanted.get("any") or [wanted.get("end", [[count, all_[0]] for count, all_ in wanted.get("versions", [])])]
            ends, end = [comparable(key, one, certain) for one in ends], comparable(key, got["end"], certain)
            nothing = end == [[1, {}]] and ends == [[]]
            kind, left, right = "differs", ends[0], end
            if end in ends or nothing:
                left, right = wanted.get("versions", []), got["versions"]
                if not are_ordered_otherwise(left, right, certain):
                    continue
                kind = "order"
            lines = [json.dumps(part, indent=1, sort_keys=True).splitlines() for part in (left, right)]
            diff = [line for line in difflib.unified_diff(*lines, lineterm="", n=1) if not line.startswith(("---", "+++", "@@"))]
            found.append((kind, step["step"], key, diff))
    return found


def write(path, history):
    """Formats a history as JSON with one line per object of a step, so that diffs of recordings are readable."""
    lines = ["{", f' "title": {json.dumps(history["title"])},', ' "steps": [']
    for place, step in enumerate(history["steps"]):
        lines.append(f'  {{"step": {json.dumps(step["step"])}, "objects": {{')
        objects = [f"   {json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in step["objects"].items()]
        lines.append(",\n".join(objects))
        lines.append("  }}" + ("," if place + 1 < len(history["steps"]) else ""))
    path.write_text("\n".join(lines + [" ]", "}"]) + "\n")


def main():
    sys.path.insert(0, str(HERE))
    import more_scenarios, scenarios  # the first one adds to the other's list
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("command", choices=["play", "check", "merge"])
    arguments.add_argument("--server")
    arguments.add_argument("--token")
    arguments.add_argument("--settle", action="store_true", help="the server is kubegc up with its own controllers")
    arguments.add_argument("--into", type=pathlib.Path)
    arguments.add_argument("--histories", type=pathlib.Path, default=HERE / "histories", help="what check compares with")
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--certain", action="store_true", help="compare only what does not depend on the speed of the machine")
    arguments.add_argument("--full", action="store_true", help="print differences in full")
    arguments.add_argument("names", nargs="*")
    options = arguments.parse_intermixed_args()
    if options.command == "merge":
        (HERE / "histories").mkdir(exist_ok=True)
        for name in sorted({path.name for folder in options.names for path in pathlib.Path(folder).glob("*.json")}):
            files = [pathlib.Path(folder) / name for folder in options.names]
            write(HERE / "histories" / name, merge([json.loads(file.read_text()) for file in files if file.exists()]))
        return 0
    known = scenarios.ALL
    names = [name for name in known if not options.names or any(re.search(wanted, name) for wanted in options.names)]
    server = Server(options.server, options.token, options.settle)
    observer = Observer(server)
    failed = Counter()

    def one(name):
        try:
            played = play(server, observer, name, known[name])
        except Exception:
            failed["broken"] += 1
            print(f"broken: {name}: " + " | ".join(traceback.format_exc().splitlines()[-3:]), flush=True)
            return
        if options.into:
            options.into.mkdir(parents=True, exist_ok=True)
            (options.into / f"{name}.json").write_text(json.dumps(played))
        if options.command == "check":
            golden = options.histories / f"{name}.json"
            found = differences(json.loads(golden.read_text()), played, options.certain)
            failed["differs" if found else "passed"] += 1
            for kind, step, key, lines in found:
                print(f"{kind}: {name} | {step} | {key}")
                for line in lines if options.full else lines[:12]:
                    print("    " + line)
        sys.stdout.flush()

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, names))
    print(f"{failed['passed']} passed, {failed['differs']} differ, {failed['broken']} broken")
    sys.stdout.flush()
    os._exit(1 if failed["differs"] or failed["broken"] else 0)


if __name__ == "__main__":
    sys.exit(main())
