// What the collectors do, as it happens.
import { Component } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Change } from "./api";
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

/** The filter is applied when nothing was typed for so long, in milliseconds. */
const TYPING = 250;

export function FeedPanel({ namespace }: { namespace: string }) {
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
 * Lines never change: one that was drawn is not drawn again. Kept in a component, not as a node that is used again: such a node holds
 * on to the list of its first picture, and so to every line that was ever shown.
 */
class FeedLine extends Component<{ line: Line }> {
  override shouldComponentUpdate(next: { line: Line }): boolean {
    return next.line !== this.props.line;
  }

  override render({ line }: { line: Line }) {
    return "skipped" in line ? <SkippedLine line={line} /> : <ChangeLine change={line} />;
  }
}

function SkippedLine({ line }: { line: Skipped }) {
  const kinds = Object.entries(line.resources)
    .sort((left, right) => right[1] - left[1])
    .slice(0, 3)
    .map(([name, number]) => `${count(number)} ${name}`);
  return (
    <li class="feed-skipped">
      {line.skipped > 0 && `${plural(line.skipped, "more change")}${kinds.length > 0 ? `: ${kinds.join(", ")}` : ""}`}
      {line.skipped > 0 && line.unknown > 0 && "; "}
      {line.unknown > 0 && `${plural(line.unknown, "older change")} ${line.unknown === 1 ? "is not kept any more, and was" : "are not kept any more, and were"} not searched`}
    </li>
  );
}

export function ChangeLine({ change }: { change: Change }) {
  const [open, setOpen] = useState(false);
  const failed = change.outcome === "refused" || change.outcome === "failed";
  const place = {
    apiVersion: "",
    kind: change.kind || change.resource || "",
    resource: change.resource ?? "",
    namespace: change.namespace ?? "",
    name: change.name ?? "",
    uid: change.uid ?? "",
  };
  return (
    <li class="feed-line">
      <div class="feed-top">
        <time class="when" dateTime={change.time}>
          {clock(change.time)}
        </time>
        <span class={`verb ${failed ? "bad" : change.verb.includes("delete") ? "gone" : ""}`}>
          {change.outcome === "applied" ? (VERBS[change.verb] ?? change.verb) : `${VERBS[change.verb] ?? change.verb}: ${change.outcome}`}
        </span>
        <button type="button" class="icon-button tiny" aria-expanded={open} aria-label={`Evidence for ${place.kind} ${place.name}`} onClick={() => setOpen(!open)}>
          <span class={`chevron ${open ? "open" : ""}`}>
            <Icon name="open" size={12} />
          </span>
        </button>
      </div>
      <ObjectLink place={place} />
      <p class="feed-why">
        <span class="code">{words(change.verdict)}</span>
        {change.owners[0] && <span class="quiet"> · {change.owners.map((owner) => `${owner.kind}/${owner.name}`).join(", ")}</span>}
      </p>
      {open && (
        <div class="evidence">
          <p>{change.message}</p>
          {change.evidence.map((fact) => (
            <p key={fact} class="quiet">
              {fact}
            </p>
          ))}
          {change.failure && <p class="warning-text">{change.failure}</p>}
          <p class="quiet">
            by {collector(change.controller)}, {Math.round(change.durationSeconds * 1000)} ms
          </p>
        </div>
      )}
    </li>
  );
}
