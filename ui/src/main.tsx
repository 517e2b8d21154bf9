// The page: bar, views, drawer, search.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { api, type Overview, type Place } from "./api";
import { FeedPanel } from "./feed";
import { clock, count, plural, since } from "./format";
import { MapView } from "./map";
import { Drawer } from "./object";
import { NodesView } from "./nodes";
import { OverviewView } from "./overview";
import { Command, Dialog, Empty, Failure, Icon } from "./parts";
import { feed, go, isSignedOut, isUnreachable, useOverview, useRoute, type Route } from "./state";

type Theme = "light" | "dark";

function useTheme(): [Theme, () => void] {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const [chosen, setChosen] = useState<Theme | null>(() => localStorage.getItem("theme") as Theme | null);
  const theme = chosen ?? (dark.matches ? "dark" : "light");
  useEffect(() => {
    if (chosen) document.documentElement.dataset.theme = chosen;
  }, [chosen]);
  const toggle = () => {
    const next = theme === "dark" ? "light" : "dark";
    localStorage.setItem("theme", next);
    setChosen(next);
  };
  return [theme, toggle];
}

function App() {
  const route = useRoute();
  const overview = useOverview(route.namespace);
  const [dialog, setDialog] = useState<"search" | "pause" | "keys" | null>(null);
  const [plan, setPlan] = useState<string | null>(null);
  // On a narrow screen the drawer covers the map.
  const [folded, setFolded] = useState(false);
  useEffect(() => setFolded(false), [route.object?.resource, route.object?.namespace, route.object?.name]);
  useEffect(() => {
    const keys = (event: KeyboardEvent) => {
      const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
      if ((event.key === "k" && (event.metaKey || event.ctrlKey)) || (event.key === "/" && !typing)) {
        event.preventDefault();
        setDialog("search");
      } else if (event.key === "?" && !typing) {
        setDialog("keys");
      } else if (!typing && !event.metaKey && !event.ctrlKey && !event.altKey) {
        const view = ({ 1: "overview", 2: "map", 3: "feed", 4: "nodes" } as const)[event.key as "1" | "2" | "3" | "4"];
        if (view) go({ view, uid: "" });
      }
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  // Alerts link to a search.
  useEffect(() => {
    if (route.search) setDialog("search");
  }, [route.search]);
  const signedOut = isSignedOut(overview.error);
  useEffect(() => {
    if (signedOut) feed.forget();
    else feed.open();
  }, [signedOut]);
  if (signedOut) return <SignedOut />;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to content
      </a>
      <Bar route={route} overview={overview.data} isStale={overview.error !== null} onSearch={() => setDialog("search")} onPause={() => setDialog("pause")} />
      {overview.error && <UnreachableBanner error={overview.error} overview={overview.data} />}
      {overview.data?.mode.state === "Paused" && <PausedBanner overview={overview.data} onResumed={overview.refresh} />}
      {overview.data?.nodeBreaker && <NodeBreakerBanner now={overview.data.now} {...overview.data.nodeBreaker} />}
      {overview.data && overview.data.stopped.length > 0 && <StoppedBanner overview={overview.data} onResumed={overview.refresh} />}
      <main id="main" tabIndex={-1} class={`layout view-${route.view} ${route.object ? "with-drawer" : ""}`}>
        <h1 class="hidden">{VIEWS.find(([view]) => view === route.view)![1]}</h1>
        {route.view === "overview" && <OverviewView overview={overview} namespace={route.namespace} stuck={route.stuck} />}
        {route.view === "map" && <MapView route={route} overview={overview.data} plan={plan} />}
        {route.view === "nodes" && <NodesView />}
        {(route.view === "overview" || route.view === "feed") && <FeedPanel namespace={route.namespace} alone={route.view === "feed"} />}
        {route.object && <Drawer subject={route.object} mayDelete={overview.data?.user.mayDelete ?? false} onPlan={setPlan} folded={folded} onFold={setFolded} />}
      </main>
      {dialog === "search" && <Search first={route.search} onClose={() => (setDialog(null), route.search && go({ search: "" }))} />}
      {dialog === "keys" && <Keys onClose={() => setDialog(null)} />}
      {dialog === "pause" && <Pause onClose={() => setDialog(null)} onPaused={overview.refresh} />}
    </>
  );
}

const VIEWS: [Route["view"], string][] = [
  ["overview", "Overview"],
  ["map", "Map"],
  ["feed", "Feed"],
  ["nodes", "Nodes"],
];

function Bar(props: { route: Route; overview: Overview | null; isStale: boolean; onSearch: () => void; onPause: () => void }) {
  const { route, overview } = props;
  const [theme, toggle] = useTheme();
  return (
    <header class="bar">
      <a class="brand" href="#/" aria-label="kubegc: overview">
        <img src="/ui/icon.svg" width="24" height="24" alt="" />
        <span>kubegc</span>
      </a>
      <Mode overview={overview} isStale={props.isStale} />
      <nav aria-label="Views">
        {VIEWS.map(([view, name]) => (
          <button type="button" key={view} class="view" aria-current={route.view === view ? "page" : undefined} onClick={() => go({ view, uid: "" })}>
            {name}
          </button>
        ))}
      </nav>
      <span class="grow" />
      <select class="namespace" aria-label="Namespace" value={route.namespace} onChange={(event) => go({ namespace: event.currentTarget.value, uid: "" })}>
        <option value="">{overview && !overview.user.seesAll ? "All that you may see" : "All namespaces"}</option>
        {route.namespace && !overview?.namespaces.some(({ name }) => name === route.namespace) && <option value={route.namespace}>{route.namespace}</option>}
        {overview?.namespaces.map(({ name, objects }) => (
          <option key={name} value={name}>
            {name} ({count(objects)})
          </option>
        ))}
      </select>
      <button type="button" class="search-button" onClick={props.onSearch} aria-keyshortcuts="Meta+K Control+K">
        <Icon name="search" />
        <span class="wide-word">Search</span>
        <kbd class="wide-only">⌘K</kbd>
      </button>
      {!props.isStale && overview?.user.mayPause && overview.mode.state === "Acting" && (
        <button type="button" class="icon-button" aria-label="Pause the collectors" title="Pause the collectors" onClick={props.onPause}>
          <Icon name="pause" />
        </button>
      )}
      <button type="button" class="icon-button" aria-label={`Use the ${theme === "dark" ? "light" : "dark"} theme`} title="Theme" onClick={toggle}>
        <Icon name="theme" />
      </button>
      {overview && (
        <span class="user wide-only" title={`Signed in as ${overview.user.name}`}>
          {overview.user.name}
        </span>
      )}
    </header>
  );
}

/** Describes the activity of the collectors, in a word and in a sentence. */
const MODES: Record<Overview["mode"]["state"], [string, string]> = {
  Acting: ["Acting", "The collectors delete what is garbage"],
  Standby: ["Standby", "Another replica has the Lease and acts; its page has the feed"],
  DryRun: ["Dry run", "The collectors report what they would delete, and delete nothing"],
  Observing: ["Observing", "Decisions are compared with those of kube-controller-manager; nothing is deleted"],
  Paused: ["Paused", "Nothing is deleted until somebody resumes the collectors"],
};

function Mode({ overview, isStale }: { overview: Overview | null; isStale: boolean }) {
  if (isStale) {
    return (
      <span class="mode" role="status" title={overview ? `No answer since ${clock(overview.now)}` : "No answer yet"}>
        <span class="dot" aria-hidden="true" />
        Not known
      </span>
    );
  }
  if (!overview) {
    return (
      <span class="mode" role="status">
        <span class="dot" aria-hidden="true" />…
      </span>
    );
  }
  const [word, sentence] = MODES[overview.mode.state];
  const tripped = overview.stopped.length + (overview.nodeBreaker ? 1 : 0);
  const isActing = overview.mode.state === "Acting" && tripped === 0;
  return (
    <span class={`mode ${isActing ? "acting" : "paused"}`} role="status" title={tripped > 0 ? `${sentence}, but for what the circuit breaker has stopped` : sentence}>
      <span class="dot" aria-hidden="true" />
      {tripped > 0 ? `${word}, ${count(tripped)} stopped` : word}
    </span>
  );
}

function UnreachableBanner({ error, overview }: { error: Error; overview: Overview | null }) {
  return (
    <div class="banner" role="alert">
      <p>
        <strong>{isUnreachable(error) ? "The server does not answer." : "The cluster cannot be read."}</strong> {!isUnreachable(error) && `${error.message}. `}The page tries
        again by itself{overview && `; what it shows is as of ${clock(overview.now)}`}.
      </p>
    </div>
  );
}

function NodeBreakerBanner({ now, missing, since: time }: { now: string; missing: number; since: string }) {
  return (
    <div class="banner nodes" role="status">
      <p>
        <strong>No node is deleted, for {since(time, now)}.</strong> {plural(missing, "machine")} {missing === 1 ? "is" : "are"} missing, and with the nodes that were deleted of late
        that is more than <code>--node-breaker-fraction</code> allows at once. Deletion continues by itself when machines return; everything else is collected.
      </p>
    </div>
  );
}

function StoppedBanner({ overview, onResumed }: { overview: Overview; onResumed: () => void }) {
  const [error, setError] = useState<Error | null>(null);
  const resume = (resource: string) => api.resume(resource).then(() => (setError(null), onResumed()), setError);
  return (
    <div class="banner stopped" role="status">
      <p>
        <strong>The circuit breaker has stopped the collection of {overview.stopped.map(({ resource }) => resource).join(", ")}.</strong> More was due for
        deletion than it allows; everything else is collected.
      </p>
      <ul class="plain">
        {overview.stopped.map(({ resource, since: time, why }) => (
          <li key={resource}>
            <p>
              {resource}, for {since(time, overview.now)}
              {why && `: ${why}`}
            </p>
            <div class="buttons">
              <Command text={`kubegc resume --resource ${resource}`} />
              {overview.user.mayPause && (
                <button type="button" class="button" onClick={() => resume(resource)}>
                  Resume {resource}
                </button>
              )}
            </div>
          </li>
        ))}
      </ul>
      {error && <span class="warning-text">{error.message}</span>}
    </div>
  );
}

function PausedBanner({ overview, onResumed }: { overview: Overview; onResumed: () => void }) {
  const [error, setError] = useState<Error | null>(null);
  if (overview.mode.state !== "Paused") return null;
  const { reason, by, since: time } = overview.mode;
  const resume = () => api.resume().then(onResumed, setError);
  return (
    <div class="banner" role="status">
      <p>
        <strong>The collectors are paused</strong> for {since(time, overview.now)}, by {by}
        {reason && `: ${reason}`}. Nothing is deleted; what happens is still observed.
      </p>
      {error && <span class="warning-text">{error.message}</span>}
      {overview.user.mayPause && (
        <button type="button" class="button" onClick={resume}>
          Resume
        </button>
      )}
    </div>
  );
}

function Pause({ onClose, onPaused }: { onClose: () => void; onPaused: () => void }) {
  const [reason, setReason] = useState("");
  const [error, setError] = useState<Error | null>(null);
  const send = (event: Event) => {
    event.preventDefault();
    api.pause(reason).then(() => (onPaused(), onClose()), setError);
  };
  return (
    <Dialog label="Pause the collectors" onClose={onClose}>
      <form onSubmit={send} class="confirm">
        <h2>Pause the collectors</h2>
        <p>Every collector stops deleting until somebody resumes it. Watches and answers stay up to date.</p>
        <label>
          Reason (shown to everyone)
          <input type="text" value={reason} maxLength={500} onInput={(event) => setReason(event.currentTarget.value)} />
        </label>
        {error && <Failure error={error} />}
        <div class="buttons">
          <button type="submit" class="button primary">
            Pause
          </button>
          <button type="button" class="button" onClick={onClose}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Search({ first, onClose }: { first: string; onClose: () => void }) {
  const [text, setText] = useState(first);
  const [found, setFound] = useState<{ items: Place[]; total: number } | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [chosen, setChosen] = useState(0);
  useEffect(() => {
    setChosen(0);
    if (!text.trim()) return setFound(null);
    const abort = new AbortController();
    const timer = setTimeout(() => {
      api.search(text, abort.signal).then(
        (answer) => (setFound(answer), setError(null)),
        (failure) => !abort.signal.aborted && setError(failure),
      );
    }, 120);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);
  const open = (place: Place) => {
    onClose();
    go({ search: "", object: { resource: place.resource, namespace: place.namespace, name: place.name } });
  };
  const items = found?.items ?? [];
  const keys = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (items.length > 0) setChosen((chosen + step + items.length) % items.length);
    } else if (event.key === "Enter" && items[chosen]) {
      event.preventDefault();
      open(items[chosen]);
    }
  };
  useEffect(() => document.getElementById(`found-${chosen}`)?.scrollIntoView({ block: "nearest" }), [chosen]);
  return (
    <Dialog label="Search objects" onClose={onClose} class="search">
      <input
        type="text"
        role="combobox"
        aria-expanded={items.length > 0}
        aria-controls="found"
        aria-activedescendant={items.length > 0 ? `found-${chosen}` : undefined}
        aria-label="Kind, name or namespace"
        placeholder="Kind, name or namespace"
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={keys}
      />
      {error && <Failure error={error} />}
      <ul id="found" role="listbox" aria-label="Objects" class="found" hidden={items.length === 0}>
        {items.map((place, number) => (
          <li key={place.uid} id={`found-${number}`} role="option" aria-selected={number === chosen} class="found-item" onClick={() => open(place)} onPointerMove={() => setChosen(number)}>
            <span class="object">
              <span class="kind">{place.kind}</span> <span class="name">{place.name}</span>
            </span>{" "}
            <span class="quiet">{place.namespace}</span>
          </li>
        ))}
      </ul>
      {found && items.length === 0 && <Empty title="Nothing found">No object that you may see has these words in its kind, name or namespace.</Empty>}
      {found && found.total > items.length && (
        <p class="quiet">
          {count(items.length)} of {count(found.total)}
        </p>
      )}
    </Dialog>
  );
}

const KEYS: [string, string][] = [
  ["1  2  3  4", "Overview, map, feed, nodes"],
  ["⌘K  Ctrl+K  /", "Search objects"],
  ["← ↑ → ↓", "On the map: to the next object"],
  ["Enter", "On the map: open the object"],
  ["Esc", "Close what is open"],
  ["?", "These keys"],
];

function Keys({ onClose }: { onClose: () => void }) {
  return (
    <Dialog label="Keys" onClose={onClose}>
      <h2>Keys</h2>
      <dl class="keys">
        {KEYS.map(([keys, meaning]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <div class="buttons">
        <button type="button" class="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

function SignedOut() {
  return (
    <main class="gate">
      <img src="/ui/icon.svg" alt="" width="40" height="40" />
      <h1>The session has ended</h1>
      <p>A session lasts an hour, and ends with the server and with the token that opened it. For the page of <code>kubegc up</code>, print a new link with:</p>
      <Command text="kubegc ui" />
      <p>For the page of <code>kubegc run</code>:</p>
      <Command text={`kubegc ui --collector ${location.host}`} />
      <p>Once you have opened that link in this browser, this page continues by itself.</p>
    </main>
  );
}

// The route to which another site linked, or that the user opened before the session began.
const place = sessionStorage.getItem("place");
sessionStorage.removeItem("place");
if (place?.startsWith("#") && !location.hash) history.replaceState(null, "", place);

render(<App />, document.getElementById("app")!);
