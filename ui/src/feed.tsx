// Shows the actions of the collectors as they happen.
import { Component } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Change, Place } from "./api";
import { clock, collector, count, plural, words } from "./format";
import { Empty, Icon, ObjectLink } from "./parts";
import { feed, type Line, type Skipped, useFeed } from "./state";

const VERBS: Record<string, string> = {
  delete: "deleted",
  "force-delete": "force-deleted",
  "set-owners": "released",
  "remove-finalizer": "finalizer removed",
  "set-finalizers": "finalizers set",
  "set-status": "status set",
  patch: "patched",
  "delete-storage": "storage deleted",
};

/** Time without typing after which the filter is applied, in milliseconds. */
const TYPING = 250;

/** Media query of screens that have room for a table. */
const WIDE = "(min-width: 721px)";

/** Reports whether the screen has room for a table. */
function useWide(): boolean {
  const [isWide, setWide] = useState(() => matchMedia(WIDE).matches);
  useEffect(() => {
    const query = matchMedia(WIDE);
    const changed = () => setWide(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return isWide;
}

/** The feed: beside the first screen and on narrow screens as a list, on its own as a table. */
export function FeedPanel({ namespace, alone }: { namespace: string; alone: boolean }) {
  const isWide = useWide();
  const { lines, connected } = useFeed();
  const [filter, setFilter] = useState("");
  const [held, setHeld] = useState<Line[] | null>(null);
  const shown = held ?? lines;
  const isFiltered = namespace !== "" || filter.trim() !== "";
  const first = useRef(true);
  useEffect(() => {
    const apply = () => {
      setHeld(null);
      feed.filter(namespace, filter.trim());
    };
    const timer = window.setTimeout(apply, first.current ? 0 : TYPING);
    first.current = false;
    return () => clearTimeout(timer);
  }, [filter, namespace]);
  return (
    <section class="card feed" aria-labelledby="feed-title">
      <header class="card-head">
        <h2 id="feed-title">Live feed</h2>
        <span class={`live ${connected ? "" : "off"}`} role="status">
          {connected ? (held ? "Held" : "Live") : "Reconnecting"}
        </span>
        <button
          type="button"
          class="icon-button"
          aria-pressed={held !== null}
          aria-label={held ? "Follow the feed" : "Hold the feed"}
          title={held ? "Follow the feed" : "Hold the feed"}
          onClick={() => setHeld(held ? null : lines)}
        >
          <Icon name={held ? "play" : "pause"} />
        </button>
      </header>
      <div class="feed-filter">
        <input type="search" placeholder="Filter: kind, name, reason, collector" aria-label="Filter the feed" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
      </div>
      {shown.length === 0 ? (
        <Empty title={isFiltered ? "Nothing fits" : "Nothing has happened yet"}>
          {isFiltered ? "No change that is kept fits the filter; others appear as they happen." : "Deletions appear here with their reason and evidence."}
        </Empty>
      ) : alone && isWide ? (
        <FeedTable lines={shown} />
      ) : (
        <ol class="feed-lines" aria-label="Changes, newest first" tabIndex={0}>
          {shown.map((line) => (
            <FeedLine key={line.key} line={line} />
          ))}
        </ol>
      )}
    </section>
  );
}

/**
 * Lines never change, so a drawn line is not drawn again. This is a component rather than a reused node: such a node would keep the
 * list of its first rendering, and so every line that was ever shown, in memory.
 */
class FeedLine extends Component<{ line: Line }> {
  override shouldComponentUpdate(next: { line: Line }): boolean {
    return next.line !== this.props.line;
  }

  override render({ line }: { line: Line }) {
    return "skipped" in line ? <SkippedLine line={line} /> : <ChangeLine change={line} />;
  }
}

const COLUMNS = ["Time", "What", "Object", "Namespace", "Why", "Owner", "Collector"] as const;

function FeedTable({ lines }: { lines: Line[] }) {
  return (
    <div class="feed-scroll" tabIndex={0} role="region" aria-label="Changes, newest first">
      <table class="feed-table">
        <thead>
          <tr>
            {COLUMNS.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
            <th scope="col">
              <span class="hidden">Evidence</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {lines.map((line) => (
            <FeedRow key={line.key} line={line} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A line of the table. As with [`FeedLine`], a drawn line is not drawn again unless it is opened. */
class FeedRow extends Component<{ line: Line }, { open: boolean }> {
  override state = { open: false };

  override shouldComponentUpdate(next: { line: Line }, state: { open: boolean }): boolean {
    return next.line !== this.props.line || state.open !== this.state.open;
  }

  override render({ line }: { line: Line }, { open }: { open: boolean }) {
    if ("skipped" in line) {
      return (
        <tr class="feed-skipped">
          <td colSpan={COLUMNS.length + 1}>{skipped(line)}</td>
        </tr>
      );
    }
    const place = placeOf(line);
    return (
      <>
        <tr class="feed-line">
          <td>
            <time class="when" dateTime={line.time}>
              {clock(line.time)}
            </time>
          </td>
          <td class={`verb ${tone(line)}`}>{deed(line)}</td>
          <td>
            <ObjectLink place={place} showNamespace={false} />
          </td>
          <td class="quiet">{place.namespace}</td>
          <td>{words(line.verdict)}</td>
          <td class="quiet">{line.owners.map((owner) => `${owner.kind}/${owner.name}`).join(", ")}</td>
          <td class="quiet">{line.user ?? collector(line.controller)}</td>
          <td>
            <Opener open={open} place={place} onToggle={() => this.setState({ open: !open })} />
          </td>
        </tr>
        {open && (
          <tr class="feed-evidence">
            <td colSpan={COLUMNS.length + 1}>
              <Evidence change={line} />
            </td>
          </tr>
        )}
      </>
    );
  }
}

function SkippedLine({ line }: { line: Skipped }) {
  return <li class="feed-skipped">{skipped(line)}</li>;
}

/** Returns the text of a line about skipped changes. */
function skipped(line: Skipped): string {
  const kinds = Object.entries(line.resources)
    .sort((left, right) => right[1] - left[1])
    .slice(0, 3)
    .map(([name, number]) => `${count(number)} ${name}`);
  const more = line.skipped > 0 ? `${plural(line.skipped, "more change")}${kinds.length > 0 ? `: ${kinds.join(", ")}` : ""}` : "";
  const rest = line.unknown === 1 ? "is not kept any more, and was" : "are not kept any more, and were";
  const unknown = line.unknown > 0 ? `${plural(line.unknown, "older change")} ${rest} not searched` : "";
  return [more, unknown].filter(Boolean).join("; ");
}

/** Returns the action, and whether it is complete. A deletion may only be requested: finalizers or a grace period keep the object. */
function deed({ verb, outcome }: Change): string {
  if (outcome === "requested") return "deletion requested";
  return outcome === "applied" ? (VERBS[verb] ?? verb) : `${VERBS[verb] ?? verb}: ${outcome}`;
}

function tone({ verb, outcome }: Change): string {
  return outcome === "refused" || outcome === "failed" ? "bad" : verb.includes("delete") ? "gone" : "";
}

function placeOf(change: Change): Place {
  return {
    apiVersion: "",
    kind: change.kind || change.resource || "",
    resource: change.resource ?? "",
    namespace: change.namespace ?? "",
    name: change.name ?? "",
    uid: change.uid ?? "",
  };
}

function Opener({ open, place, onToggle }: { open: boolean; place: Place; onToggle: () => void }) {
  return (
    <button type="button" class="icon-button tiny" aria-expanded={open} aria-label={`Evidence for ${place.kind} ${place.name}`} onClick={onToggle}>
      <span class={`chevron ${open ? "open" : ""}`}>
        <Icon name="open" size={12} />
      </span>
    </button>
  );
}

function Evidence({ change }: { change: Change }) {
  return (
    <div class="evidence">
      <p>{change.message}</p>
      {change.evidence.map((fact) => (
        <p key={fact} class="quiet">
          {fact}
        </p>
      ))}
      {change.failure && <p class="warning-text">{change.failure}</p>}
      <p class="quiet">
        by {change.user ?? collector(change.controller)}
        {change.durationSeconds !== undefined && `, ${Math.round(change.durationSeconds * 1000)} ms`}
      </p>
    </div>
  );
}

export function ChangeLine({ change }: { change: Change }) {
  const [open, setOpen] = useState(false);
  const place = placeOf(change);
  return (
    <li class="feed-line">
      <div class="feed-top">
        <time class="when" dateTime={change.time}>
          {clock(change.time)}
        </time>
        <span class={`verb ${tone(change)}`}>{deed(change)}</span>
        <Opener open={open} place={place} onToggle={() => setOpen(!open)} />
      </div>
      <ObjectLink place={place} />
      <p class="feed-why">
        <span class="code">{words(change.verdict)}</span>
        {change.owners[0] && <span class="quiet"> · {change.owners.map((owner) => `${owner.kind}/${owner.name}`).join(", ")}</span>}
        {change.user && <span class="quiet"> · by {change.user}</span>}
      </p>
      {open && <Evidence change={change} />}
    </li>
  );
}
