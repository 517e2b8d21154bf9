// Starts a server with sample objects, and a browser, for the tests and the screenshots.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import https from "node:https";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Returns functions that send requests to a server at this address. */
export function caller(url) {
  const agent = new https.Agent({ rejectUnauthorized: false, keepAlive: true, maxSockets: 16 });
  const ask = (method, path, { body, token = "administrator-token", headers = {} } = {}) =>
    new Promise((resolve, reject) => {
      const text = body && JSON.stringify(body);
      const request = https.request(url + path, {
        method,
        agent,
        headers: { ...(token ? { authorization: `Bearer ${token}` } : {}), ...(text ? { "content-type": "application/json", "content-length": Buffer.byteLength(text) } : {}), ...headers },
      });
      // The server may close an idle connection just when it is reused.
      request.on("error", (error) => (request.reusedSocket && error.code === "ECONNRESET" ? resolve(ask(method, path, { body, token, headers })) : reject(error)));
      request.on("response", (answer) => {
        let received = "";
        answer.setEncoding("utf8");
        answer.on("data", (data) => (received += data));
        answer.on("end", () => {
          let document = received;
          try {
            document = JSON.parse(received);
          } catch {
            // The response is not JSON.
          }
          resolve({ code: answer.statusCode, headers: answer.headers, body: document });
        });
      });
      request.end(text);
    });
  const must = async (method, path, body, token) => {
    const answer = await ask(method, path, { body, token });
    if (answer.code >= 300) throw new Error(`${method} ${path}: ${answer.code} ${JSON.stringify(answer.body)}`);
    return answer.body;
  };
  return { ask, must, agent };
}

/** Creates a temporary directory; the second result removes it. */
export function folder() {
  const home = mkdtempSync(join(tmpdir(), "kubegc-page-"));
  return [home, () => rmSync(home, { recursive: true, force: true })];
}

/** Starts `kubegc up`, and returns functions that send requests to it. Keeps objects in the directory `kept`, or only in memory. */
export async function start(binary, more = [], kept = null) {
  const [home, remove] = kept ? [kept, () => undefined] : folder();
  const kubeconfig = join(home, "kubeconfig");
  const tokens = join(home, "tokens.csv");
  writeFileSync(tokens, "administrator-token,admin,1,\"system:masters\"\nann-token,ann,2\n", { mode: 0o600 });
  const child = spawn(
    binary,
    ["up", ...(kept ? ["--data-dir", join(kept, "data")] : ["--ephemeral"]), ...(more.some((word) => word.startsWith("--controllers")) ? [] : ["--controllers=*,expiry-controller"]), "--bind-address", "127.0.0.1:0", "--write-kubeconfig", kubeconfig, "--token-auth-file", tokens, "--workloads=off", ...more],
    { env: { ...process.env, HOME: home, XDG_DATA_HOME: home, XDG_RUNTIME_DIR: home, KUBECONFIG: "" }, stdio: ["ignore", "pipe", "pipe"] },
  );
  let [out, errors] = ["", ""];
  child.stderr.on("data", (data) => (errors += data));
  const url = await new Promise((resolve, reject) => {
    child.stdout.on("data", (data) => {
      out += data;
      const ready = /^kubegc API server is ready on (\S+)/m.exec(out);
      if (ready) resolve(ready[1]);
    });
    child.on("exit", (code) => reject(new Error(`kubegc up ended with ${code}: ${errors}`)));
  });
  const { ask, must, agent } = caller(url);
  const stop = () =>
    new Promise((resolve) => {
      child.removeAllListeners("exit");
      const ended = () => {
        remove();
        agent.destroy();
        resolve();
      };
      if (child.exitCode !== null) return ended();
      child.on("exit", ended);
      child.kill("SIGTERM");
    });
  return { url, ask, must, stop, kubeconfig, printed: () => out, pid: child.pid };
}

/**
* The network between a browser and a server: an address that stays while the server behind it is replaced. `cut` breaks all
 * connections and refuses new ones until `mend` is called, perhaps with another server.
 */
export async function network(server) {
  let [target, open] = [new URL(server.url), true];
  const sockets = new Set();
  const entrance = net.createServer((client) => {
    if (!open) return client.destroy();
    const onward = net.connect(Number(target.port), target.hostname);
    for (const [from, to] of [[client, onward], [onward, client]]) {
      sockets.add(from);
      from.on("close", () => (sockets.delete(from), to.destroy()));
      from.on("error", () => to.destroy());
      from.pipe(to);
    }
  });
  await new Promise((resolve) => entrance.listen(0, "127.0.0.1", resolve));
  const cut = () => {
    open = false;
    sockets.forEach((socket) => socket.destroy());
  };
  const mend = (server) => ([target, open] = [server ? new URL(server.url) : target, true]);
  const close = () => (cut(), new Promise((resolve) => entrance.close(resolve)));
  return { url: `https://127.0.0.1:${entrance.address().port}`, cut, mend, close };
}

const owner = (object, kind, apiVersion, blocks = true) => ({
  apiVersion,
  kind,
  name: object.metadata.name,
  uid: object.metadata.uid,
  controller: true,
  blockOwnerDeletion: blocks,
});

/** Creates a shop: a Deployment with its ReplicaSets and Pods, stuck objects, and due objects. */
export async function furnish(cluster, { replicas = 6 } = {}) {
  const { must } = cluster;
  const namespace = (name) => must("POST", "/api/v1/namespaces", { metadata: { name } });
  await namespace("shop");
  await namespace("bank");
  const labels = { app: "web" };
  const template = { metadata: { labels }, spec: { containers: [{ name: "web", image: "nginx" }] } };
  const deployment = await must("POST", "/apis/apps/v1/namespaces/shop/deployments", {
    metadata: { name: "web" },
    spec: { replicas, selector: { matchLabels: labels }, template },
  });
  for (const [version, pods] of [["5d8f7c9b44", replicas], ["77c4d8f6b9", 0]]) {
    const set = await must("POST", "/apis/apps/v1/namespaces/shop/replicasets", {
      metadata: { name: `web-${version}`, ownerReferences: [owner(deployment, "Deployment", "apps/v1")] },
      spec: { replicas: pods, selector: { matchLabels: labels }, template },
    });
    await Promise.all(
      Array.from({ length: pods }, (_, number) =>
        must("POST", "/api/v1/namespaces/shop/pods", {
          metadata: { name: `web-${version}-${(number + 46656).toString(36)}`, labels, ownerReferences: [owner(set, "ReplicaSet", "apps/v1")] },
          spec: template.spec,
        }),
      ),
    );
  }
  const map = (place, name, more = {}) => must("POST", `/api/v1/namespaces/${place}/configmaps`, { metadata: { name, ...more } });
  // Two owners, one of them blocking.
  const [settings, theme] = [await map("shop", "settings"), await map("shop", "theme")];
  await map("shop", "rendered", {
    ownerReferences: [
      { ...owner(settings, "ConfigMap", "v1"), controller: false },
      { ...owner(theme, "ConfigMap", "v1", false), controller: false },
    ],
  });
  await map("bank", "ledger");
  // Stuck: no controller removes this finalizer.
  await map("shop", "cart-index", { finalizers: ["search.example.com/release-index"] });
  await must("DELETE", "/api/v1/namespaces/shop/configmaps/cart-index");
  // Due: finished Jobs with a TTL, and an annotation.
  const now = new Date();
  for (const [name, ttl] of [["import-0412", 1800], ["import-0413", 5400], ["report-weekly", 40_000], ["cleanup", 80_000]]) {
    const job = await must("POST", "/apis/batch/v1/namespaces/shop/jobs", {
      metadata: { name },
      spec: { ttlSecondsAfterFinished: ttl, template: { spec: { restartPolicy: "Never", containers: [{ name: "a", image: "busybox" }] } } },
    });
    const time = now.toISOString().replace(/\.\d+/, "");
    job.status = {
      startTime: time,
      completionTime: time,
      succeeded: 1,
      uncountedTerminatedPods: {},
      conditions: ["SuccessCriteriaMet", "Complete"].map((type) => ({ type, status: "True", lastTransitionTime: time, lastProbeTime: time })),
    };
    await must("PUT", `/apis/batch/v1/namespaces/shop/jobs/${name}/status`, job);
  }
  // Images removed and due on a node, as its agent reports them.
  const node = await must("POST", "/api/v1/nodes", { metadata: { name: "node-1" } });
  const image = (name, hours) => ({ at: now.getTime() + hours * 3_600_000, name });
  const report = {
    written: now.getTime(),
    removed: [{ at: now.getTime(), images: 4, freedBytes: 1_288_490_188, containers: 12, sandboxes: 3, logDirectories: 2, links: 2 }],
    due: [image("registry.example/shop/web:v41", 3), image("registry.example/shop/web:v40", 20)],
    dueTotal: 2,
    state: {
      disks: [{ path: "/var/lib/containerd", capacityBytes: 107_374_182_400, usedBytes: 66_571_993_088 }],
      images: 41,
      imageBytes: 25_769_803_776,
      unexplainedBytes: 3_221_225_472,
      passes: [
        { collector: "images", at: now.getTime() - 300_000, failed: false },
        { collector: "containers", at: now.getTime(), failed: false },
      ],
      policies: [{ policy: "workers", state: "DryRun", images: 12, bytes: 3_221_225_472 }],
    },
  };
  await must("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", {
    metadata: {
      name: "kubegc-node-node-1",
      labels: { "kubegc.io/report": "node" },
      annotations: { "kubegc.io/node-report": JSON.stringify(report) },
      ownerReferences: [{ apiVersion: "v1", kind: "Node", name: "node-1", uid: node.metadata.uid }],
    },
  });
  // A node whose agent failed on a full disk, and a node without an agent.
  const full = await must("POST", "/api/v1/nodes", { metadata: { name: "node-2" } });
  await must("POST", "/api/v1/nodes", { metadata: { name: "node-3" } });
  await must("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", {
    metadata: {
      name: "kubegc-node-node-2",
      labels: { "kubegc.io/report": "node" },
      annotations: {
        "kubegc.io/node-report": JSON.stringify({
          written: now.getTime(),
          state: {
            disks: [{ path: "/var/lib/containerd", capacityBytes: 53_687_091_200, usedBytes: 49_392_123_904 }],
            images: 12,
            imageBytes: 4_294_967_296,
            passes: [{ collector: "images", at: now.getTime(), failed: true }],
          },
        }),
      },
      ownerReferences: [{ apiVersion: "v1", kind: "Node", name: "node-2", uid: full.metadata.uid }],
    },
  });
  await map("shop", "preview-412", { annotations: { "kubegc.io/ttl": "12h" } });
  return { deployment };
}

/** Creates an owner with this number of ConfigMaps. The returned function deletes the owner, and the collector then deletes the rest. */
export async function cascade(cluster, dependents, place = "shop", name = `tree-${dependents}`) {
  const root = await cluster.must("POST", `/api/v1/namespaces/${place}/configmaps`, { metadata: { name } });
  const ownerReferences = [{ ...owner(root, "ConfigMap", "v1"), controller: false }];
  for (let from = 0; from < dependents; from += 200) {
    await Promise.all(
      Array.from({ length: Math.min(200, dependents - from) }, (_, number) =>
        cluster.must("POST", `/api/v1/namespaces/${place}/configmaps`, { metadata: { name: `${name}-${from + number}`, ownerReferences } }),
      ),
    );
  }
  return () => cluster.must("DELETE", `/api/v1/namespaces/${place}/configmaps/${name}`, { propagationPolicy: "Background" });
}

/** Starts a browser, and opens the page in it with a user's link. */
export async function browse(cluster, chromium, executablePath) {
  const browser = await chromium.launch({
    executablePath,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  // The address may be that of a network in front of the server.
  const link = async (token = "administrator-token") => {
    const { pathname, search } = new URL((await cluster.ask("POST", "/kubegc/v1/link", { body: {}, token })).body.url);
    return cluster.url + pathname + search;
  };
  const open = async ({ token, width = 1440, height = 900, dark = false, path = "" } = {}) => {
    const context = await browser.newContext({
      ignoreHTTPSErrors: true,
      viewport: { width, height },
      colorScheme: dark ? "dark" : "light",
      reducedMotion: "reduce",
    });
    const page = await context.newPage();
    page.elsewhere = [];
    page.errors = [];
    page.on("request", (request) => request.url().startsWith(`${cluster.url}/`) || page.elsewhere.push(request.url()));
    page.on("pageerror", (error) => page.errors.push(String(error)));
    page.on("console", (message) => message.type() === "error" && page.errors.push(message.text()));
    await page.goto(await link(token));
    await page.waitForURL(`${cluster.url}/ui`);
    if (path) await page.goto(`${cluster.url}/ui${path}`);
    return page;
  };
  return { browser, open, link };
}
