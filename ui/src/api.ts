// The API of the page, as docs/page.md and /kubegc/v1/openapi.json describe it.

export interface Place {
  apiVersion: string;
  kind: string;
  resource: string;
  namespace: string;
  name: string;
  uid: string;
}

export interface Collected {
  controller: string;
  total: number;
  minutes: number[];
}

export interface StuckRow {
  code: string;
  message: string;
  subject: string;
  since: string | null;
  ageSeconds: number | null;
  objects: Place[];
  objectCount: number;
  waiting: Place[];
  waitingCount: number;
  help: string[];
  /** Commands that free the first object and the others by force, and how many more objects need such a command. */
  force: { command: string; strands: string; others: string[]; unlisted: number } | null;
}

export interface Due {
  at: string;
  inSeconds: number;
  code: string;
  collector: string;
  detail: string;
  message: string;
  object: Place;
}

/** Removals by the agent of a node. */
export interface Removed {
  images: number;
  freedBytes: number;
  containers: number;
  sandboxes: number;
  logDirectories: number;
  links: number;
}

export interface Overview {
  now: string;
  clock: string;
  clockAheadSeconds: number;
  tookMilliseconds: number;
  user: { name: string; seesAll: boolean; mayPause: boolean; mayDelete: boolean };
  mode: { state: "Acting" | "Standby" | "DryRun" | "Observing" } | { state: "Paused"; reason: string; by: string; since: string };
  /** Reason why no node is deleted, if none is. */
  nodeBreaker: { missing: number; since: string } | null;
  stopped: { resource: string; since: string; why: string | null }[];
  namespaces: { name: string; objects: number }[];
  kinds: { kind: string; objects: number }[];
  collected: Collected[];
  terminating: { total: number; items: { object: Place; since: string | null; finalizers: string[] }[] };
  stuck: { total: number; objects: number; items: StuckRow[] };
  due: { total: number; slots: number[]; items: Due[] };
  nodes: { total: number; removed: Removed; items: { node: string; removed: Removed; due: number; reported: string }[] };
  unseen: string[];
}

/** A node as its agent reports it. */
export interface FleetNode {
  node: string;
  reported: string;
  /** True if its agent has not reported for two hours. */
  silent: boolean;
  disks: { path: string; capacityBytes: number; usedBytes: number; usagePercent: number }[];
  images: number | null;
  imageBytes: number | null;
  unexplainedBytes: number | null;
  passes: { collector: string; at: string; failed: boolean }[];
  removed: Removed;
  due: number;
  /** Results of the policies for nodes that select it. */
  policies: NodePolicyResult[];
}

/** Images that a policy for nodes removed, or would have removed, in a node's last pass. */
export interface NodePolicyResult {
  policy: string;
  state: "DryRun" | "Enforced" | "Superseded" | "Invalid";
  images: number;
  bytes: number;
  message: string;
  kubelet: string;
}

/** The nodes that need attention first, then the fullest. */
export interface Fleet {
  now: string;
  total: number;
  silent: number;
  items: FleetNode[];
  unreported: { total: number; names: string[] };
}

export type NodeState = "Living" | "Terminating" | "Orphan" | "InvalidReference" | "Absent";

export interface MapNode {
  object: Place;
  state: NodeState;
  count: number;
  members: Place[];
  finalizers: string[];
  omitted: number;
  /** The plan's fate for all objects of the node. */
  fate: Fate | null;
  /** UID by which the group of this object was expanded. */
  expandedFrom: string | null;
  /** Number of ready and of failed objects among the `known` ones; `text` is the readiness of a single object. */
  health: { ready: number; failed: number; known: number; text: string } | null;
}

export interface MapEdge {
  owner: number;
  dependent: number;
  blocking: boolean;
  controller: boolean;
  invalid: boolean;
}

export interface OwnershipMap {
  nodes: MapNode[];
  edges: MapEdge[];
  objects: number;
  omitted: number;
  kinds: { resource: string; kind: string; objects: number; shown: boolean }[];
}

export interface Change {
  number: number;
  time: string;
  controller: string;
  /** Who ordered it, if it was no collector. */
  user?: string;
  verb: string;
  resource?: string;
  kind?: string;
  namespace?: string;
  name?: string;
  uid?: string;
  verdict: string;
  message: string;
  outcome: string;
  owners: { kind: string; name: string; uid: string }[];
  evidence: string[];
  failure?: string;
  durationSeconds?: number;
}

export interface Why {
  object: Place;
  conclusion: string;
  message: string;
  forecast: { message: string } | null;
  protections: string[];
  holds: StuckRow[];
  owners: { kind: string; name: string; uid: string; state: string; evidence: string | null }[];
  requestedBy: string[];
  unseen: string[];
}

export interface Condition {
  type: string;
  status: string | null;
  reason: string | null;
  message: string | null;
  since: string | null;
}

export interface ObjectAnswer {
  why: Why | null;
  metadata: { metadata: { uid: string; deletionTimestamp?: string } } | null;
  status: { phase: string | null; conditions: Condition[] } | null;
  dependents: { total: number; items: Place[] } | null;
  yaml: string | null;
  /** With those in the specification of a namespace. */
  finalizers: string[];
  journal: Change[];
}

/** What depends on one finalizer of an object. */
export interface Release {
  object: Place;
  resourceVersion: string;
  finalizer: string;
  /** Why it is removed only by force. */
  objection: string | null;
  lines: { heading: string; text: string }[];
  unseen: string[];
}

export type Fate = "Deleted" | "DeletedLater" | "Stuck" | "Released";
export type Policy = "background" | "foreground" | "orphan";

export interface LostVolume {
  name: string;
  claim: string;
  bytes: number | null;
}

export interface Plan {
  id: string;
  summary: string;
  groups: { fate: Fate; kind: string; total: number; items: (Place & { remarks: string[] })[] }[];
  lostVolumes: LostVolume[];
  /** Volumes of stuck claims, lost once the claims are released. */
  lostWhenReleased: LostVolume[];
  retainedVolumes: string[];
  stuck: string[];
  recreated: string[];
  /** Deletions that the API server would refuse, and admission webhooks that may refuse some. */
  refused: string[];
  webhooks: string[];
  /** Owners that cannot be read. */
  assumedLiving: string[];
  uid: string;
  objects: number;
  needsName: boolean;
  unseen: string[];
}

/** Number of objects that a deletion has left to remove, and what blocks it. */
export interface Remaining {
  objects: number;
  remaining: number;
  unfollowed: number;
  stuck: number;
  causes: { total: number; items: StuckRow[] };
}

/** A refusal by the server, with its code. */
export class Refused extends Error {
  constructor(
    readonly code: number,
    readonly reason: string,
    message: string,
    readonly details: unknown,
  ) {
    super(message);
  }

  /** Whether the session has ended. */
  get signedOut(): boolean {
    return this.code === 401 || (this.code === 403 && this.message.includes("system:anonymous"));
  }
}

async function ask<T>(path: string, init: RequestInit = {}): Promise<T> {
  const answer = await fetch(path, { credentials: "same-origin", ...init });
  const document = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    throw new Refused(answer.status, document.reason ?? "", document.message ?? answer.statusText, document.details);
  }
  return document as T;
}

function query(path: string, parameters: Record<string, string | undefined>): string {
  const given = Object.entries(parameters).filter((pair): pair is [string, string] => !!pair[1]);
  const text = new URLSearchParams(given).toString();
  return `/kubegc/v1/${path}${text ? `?${text}` : ""}`;
}

function order<T>(path: string, body: unknown): Promise<T> {
  return ask<T>(`/kubegc/v1/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
}

export interface Subject {
  resource: string;
  namespace: string;
  name: string;
}

/** Returns the address of the feed with this filter. */
export const feedAddress = (namespace: string, q: string): string => query("feed", { namespace, q });

const named = ({ resource, namespace, name }: Subject) => ({ resource, namespace, name });

export const api = {
  overview: (namespace: string, signal?: AbortSignal) => ask<Overview>(query("overview", { namespace }), { signal }),
  map: (target: { namespace?: string; uid?: string; plan?: string; selected?: string; expand?: string; kinds?: string }, signal?: AbortSignal) =>
    ask<OwnershipMap>(query("map", target), { signal }),
  search: (q: string, signal?: AbortSignal) => ask<{ items: Place[]; total: number }>(query("search", { q }), { signal }),
  nodes: (q: string, signal?: AbortSignal) => ask<Fleet>(query("nodes", { q }), { signal }),
  object: (subject: Subject, signal?: AbortSignal) => ask<ObjectAnswer>(query("object", { ...named(subject), dependents: "true" }), { signal }),
  plan: (subject: Subject, policy: Policy, signal?: AbortSignal) =>
    ask<Plan>(query("plan", { ...named(subject), policy }), { signal }),
  delete: (subject: Subject, plan: Plan, policy: Policy, typed: string) =>
    order<{ deletion: string }>("delete", {
      ...named(subject),
      uid: plan.uid,
      policy,
      objects: plan.objects,
      lostVolumes: plan.lostVolumes.length,
      typed,
    }),
  finalizer: (subject: Subject, finalizer: string, signal?: AbortSignal) => ask<Release>(query("finalizer", { ...named(subject), finalizer }), { signal }),
  release: (subject: Subject, { object, resourceVersion, finalizer }: Release, force: boolean) =>
    order<{ unrecorded: string | null }>("release", { ...named(subject), uid: object.uid, resourceVersion, finalizer, force }),
  remaining: (deletion: string, signal?: AbortSignal) => ask<Remaining>(query("remaining", { deletion }), { signal }),
  pause: (reason: string) => order("pause", { reason }),
  /** Resumes all collectors, or one resource that the circuit breaker has stopped. */
  resume: (resource = "") => order("resume", { resource }),
};
