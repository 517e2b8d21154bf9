// State that the parts of the page share: the route, the overview and the feed.
import { useEffect, useRef, useState } from "preact/hooks";
import { api, feedAddress, Refused, type Change, type Overview, type Subject } from "./api";

/** The route in the page's address. */
export interface Route {
  view: "overview" | "map" | "feed" | "nodes";
  namespace: string;
  /** The object that the map is about. */
  uid: string;
  /** The object in the drawer. */
  object: Subject | null;
  /** The search text. */
  search: string;
  /** The code of the root causes that are shown first. */
  stuck: string;
  /** Resources that the map draws, with commas between them; without it, all but Events. */
  kinds: string;
}

function read(): Route {
  const [view = "", text = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parameters = new URLSearchParams(text);
  const object = parameters.get("object")?.split("/") ?? [];
  return {
    view: view === "map" || view === "feed" || view === "nodes" ? view : "overview",
    namespace: parameters.get("namespace") ?? "",
    uid: parameters.get("uid") ?? "",
    search: parameters.get("search") ?? "",
    stuck: parameters.get("stuck") ?? "",
    kinds: parameters.get("kinds") ?? "",
    object: object.length === 3 ? { resource: object[0]!, namespace: object[1]!, name: object[2]! } : null,
  };
}

export function go(change: Partial<Route>): void {
  // An alert leads to what is stuck; whoever goes on from there has seen it.
  const route = { ...read(), stuck: "", ...change };
  const parameters = new URLSearchParams();
  if (route.namespace) parameters.set("namespace", route.namespace);
  if (route.uid) parameters.set("uid", route.uid);
  if (route.search) parameters.set("search", route.search);
  if (route.stuck) parameters.set("stuck", route.stuck);
  if (route.kinds) parameters.set("kinds", route.kinds);
  if (route.object) parameters.set("object", `${route.object.resource}/${route.object.namespace}/${route.object.name}`);
  const text = parameters.toString();
  location.hash = `#/${route.view === "overview" ? "" : route.view}${text ? `?${text}` : ""}`;
}

export function useRoute(): Route {
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const changed = () => setRoute(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** Maximum number of changes kept in the feed. */
const KEPT = 200;
/** Delay of a refresh after a change, and interval of refreshes without changes, in milliseconds. */
const AFTER_CHANGE = 1500;
const WITHOUT_CHANGE = 10_000;
/** Delay before a refused feed is opened again, in milliseconds. */
const AFTER_REFUSAL = 5000;

export interface Skipped {
  key: string;
  skipped: number;
  resources: Record<string, number>;
  /** Number of changes that are no longer kept, and may or may not match the filter. */
  unknown: number;
}

export type Line = (Change & { key: string }) | Skipped;

export interface Feed {
  lines: Line[];
  connected: boolean;
}

/** The feed of changes that the user may see and that match the filter, newest first. */
export class FeedStore {
  lines: Line[] = [];
  connected = false;
  private listeners = new Set<() => void>();
  private waiting: Line[] = [];
  private source: EventSource | null = null;
  private drawing = 0;
  private sequence = 0;
  private again = 0;
  private address = feedAddress("", "");
  private modes = new Set<() => void>();

  /** Shows only changes that match. The server filters, because it sends only a sample without a filter. */
  filter(namespace: string, text: string): void {
    const address = feedAddress(namespace, text);
    if (address === this.address) return;
    this.address = address;
    const was = this.source;
    this.forget();
    if (was) this.open();
  }

  open(): void {
    this.close();
    const source = new EventSource(this.address);
    this.source = source;
    source.addEventListener("open", () => this.connect(true));
    source.addEventListener("error", () => {
      this.connect(false);
      // Browsers reconnect after a broken connection, but not after an error response, such as that of a starting server.
      if (source.readyState === EventSource.CLOSED) this.again = window.setTimeout(() => this.open(), AFTER_REFUSAL);
    });
    source.addEventListener("change", (event) => {
      const change = JSON.parse(event.data) as Change;
      // Each run of the server numbers its changes from zero.
      this.add({ ...change, key: `${change.time} ${change.number}` });
    });
    source.addEventListener("mode", () => this.modes.forEach((listener) => listener()));
    source.addEventListener("skipped", (event) => {
      const { count, resources, unknown } = JSON.parse(event.data) as { count: number; resources: Record<string, number>; unknown: number };
      this.add({ key: `s${this.sequence++}`, skipped: count, resources, unknown });
    });
  }

  close(): void {
    clearTimeout(this.again);
    this.source?.close();
    this.source = null;
    this.connected = false;
  }

  /** Closes the feed and clears it, because another user may sign in. */
  forget(): void {
    this.close();
    this.lines = [];
    this.waiting = [];
    this.draw();
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Calls this whenever the collectors are paused, are resumed, or begin or cease to act. */
  onMode(listener: () => void): () => void {
    this.modes.add(listener);
    return () => this.modes.delete(listener);
  }

  private connect(connected: boolean): void {
    this.connected = connected;
    this.draw();
  }

  private add(line: Line): void {
    this.waiting.push(line);
    // Draw once per frame, however many changes arrive.
    if (this.waiting.length > KEPT) this.waiting.splice(0, this.waiting.length - KEPT);
    this.draw();
  }

  private draw(): void {
    this.drawing ||= requestAnimationFrame(() => {
      this.drawing = 0;
      if (this.waiting.length > 0) {
        const known = new Set(this.lines.map((line) => line.key));
        const fresh = this.waiting.reverse().filter((line) => !known.has(line.key) && known.add(line.key));
        this.waiting = [];
        this.lines = [...fresh, ...this.lines].slice(0, KEPT);
      }
      this.listeners.forEach((listener) => listener());
    });
  }
}

export const feed = new FeedStore();

export function useFeed(): Feed {
  const [, draw] = useState(0);
  useEffect(() => feed.subscribe(() => draw((number) => number + 1)), []);
  return { lines: feed.lines, connected: feed.connected };
}

export interface Loaded<T> {
  data: T | null;
  error: Error | null;
  refresh: () => void;
}

/** A response that is requested again after changes, and at intervals. */
export function useLive<T>(load: (signal: AbortSignal) => Promise<T>, parts: unknown[]): Loaded<T> {
  const [state, setState] = useState<{ data: T | null; error: Error | null; key: string }>({
    data: null,
    error: null,
    key: "",
  });
  const again = useRef<() => void>(() => undefined);
  const key = JSON.stringify(parts);
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    let due = Infinity;
    let asking = false;
    // True if a refresh was requested during a request, whose response may be too old for it.
    let isOutdated = false;
    const within = (time: number) => {
      if (asking || Date.now() + time >= due) return;
      clearTimeout(timer);
      due = Date.now() + time;
      timer = window.setTimeout(refresh, time);
    };
    const refresh = async () => {
      if (asking) {
        isOutdated = true;
        return;
      }
      clearTimeout(timer);
      asking = true;
      try {
        const data = await load(abort.signal);
        if (!abort.signal.aborted) setState({ data, error: null, key });
      } catch (error) {
        if (!abort.signal.aborted) setState((known) => ({ data: known.key === key ? known.data : null, error: error as Error, key }));
      }
      asking = false;
      due = Infinity;
      // A page in the background refreshes rarely.
      if (abort.signal.aborted) return;
      if (isOutdated) {
        isOutdated = false;
        within(0);
        return;
      }
      within(document.hidden ? 6 * WITHOUT_CHANGE : WITHOUT_CHANGE);
    };
    again.current = refresh;
    refresh();
    const unsubscribe = feed.subscribe(() => !document.hidden && within(AFTER_CHANGE));
    const shown = () => !document.hidden && within(0);
    document.addEventListener("visibilitychange", shown);
    return () => {
      abort.abort();
      clearTimeout(timer);
      unsubscribe();
      document.removeEventListener("visibilitychange", shown);
    };
  }, [key]);
  return { data: state.key === key ? state.data : null, error: state.key === key ? state.error : null, refresh: () => again.current() };
}

export function useOverview(namespace: string): Loaded<Overview> {
  const overview = useLive((signal) => api.overview(namespace, signal), ["overview", namespace]);
  useEffect(() => feed.onMode(() => overview.refresh()), []);
  return overview;
}

/** Reports whether there was no response at all. */
export const isUnreachable = (error: Error | null): boolean => error !== null && !(error instanceof Refused);

export const isSignedOut = (error: Error | null): boolean => error instanceof Refused && error.signedOut;
