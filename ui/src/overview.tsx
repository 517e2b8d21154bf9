// The first screen: what is collected, terminating, stuck and due.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Collected, Due, Overview, Removed, StuckRow } from "./api";
import { bytes, clock, collector, count, due, duration, hour, plural, since, words } from "./format";
import { Card, Command, Empty, Failure, Icon, Loading, ObjectLink, Sparkline } from "./parts";
import { isUnreachable, type Loaded } from "./state";

export function OverviewView({ overview, namespace, stuck }: { overview: Loaded<Overview>; namespace: string; stuck: string }) {
  const { data, error, refresh } = overview;
  if (!data) {
    return (
      <div class="overview">
        <div class="tiles">
          {["Collected, last hour", "Terminating", "Stuck", "Due in 24 hours"].map((title) => (
            <div class="tile" key={title}>
              <span class="tile-title">{title}</span>
              <span class="tile-number quiet">–</span>
            </div>
          ))}
        </div>
        {error && !isUnreachable(error) ? <Failure error={error} retry={refresh} /> : <Loading lines={6} />}
      </div>
    );
  }
  return (
    <div class={`overview ${error ? "stale" : ""}`}>
      {error && !isUnreachable(error) && <Failure error={error} retry={refresh} />}
      <Tiles data={data} isStale={error !== null} />
      {!error && isUntouched(data) && <FirstSteps data={data} />}
      <Stuck data={data} namespace={namespace} code={stuck} isStale={error !== null} />
      <DueLine data={data} />
      <div class="columns">
        <Collectors collected={data.collected} />
        <Terminating data={data} />
      </div>
      {data.nodes.total > 0 && <Nodes data={data} />}
      {data.unseen.length > 0 && (
        <Card title="Not seen" id="unseen" class="quiet-card">
          <ul class="plain">
            {data.unseen.map((line) => (
              <li key={line}>{line}</li>
            ))}
          </ul>
        </Card>
      )}
    </div>
  );
}

/** Reports whether there is nothing to show yet. */
const isUntouched = (data: Overview): boolean =>
  data.terminating.total === 0 && data.stuck.total === 0 && data.due.total === 0 && data.collected.every((one) => one.total === 0);

/** Explains a first deletion to users who have not seen one. */
function FirstSteps({ data }: { data: Overview }) {
  return (
    <Card title="Nothing has been deleted yet" id="first-steps" class="first-steps">
      <p>
        {data.mode.state === "Acting"
          ? "Delete something that owns others: what the collectors delete after it appears in the live feed with its reason."
          : "The collectors delete nothing now; questions and plans work all the same."}
      </p>
      <ol class="steps">
        <li>
          Create an owner with dependents
          <Command text="kubectl create deployment first --image=nginx --replicas=3" />
        </li>
        <li>
          See what its deletion would take along, on the command line or here: <kbd>/</kbd> finds it, and <em>Plan a deletion</em> draws the plan onto the map
          <Command text="kubegc plan delete deployment first" />
        </li>
        <li>
          Delete it
          <Command text="kubectl delete deployment first" />
        </li>
      </ol>
    </Card>
  );
}

function Tiles({ data, isStale }: { data: Overview; isStale: boolean }) {
  const minutes = data.collected.reduce<number[]>(
    (sums, one) => one.minutes.map((value, place) => value + (sums[place] ?? 0)),
    [],
  );
  const total = data.collected.reduce((sum, one) => sum + one.total, 0);
  const next = data.due.items[0];
  const oldest = data.terminating.items[0];
  return (
    <div class="tiles">
      <div class="tile">
        <span class="tile-title">Collected, last hour</span>
        <span class="tile-number">{count(total)}</span>
        {total > 0 ? (
          <Sparkline values={minutes} label={`${plural(total, "deletion")} in the last hour, by minute`} width={160} />
        ) : (
          <span class="tile-note">Nothing yet</span>
        )}
      </div>
      <div class="tile">
        <span class="tile-title">Terminating</span>
        <span class="tile-number">{count(data.terminating.total)}</span>
        <span class="tile-note">{oldest ? `the oldest for ${since(oldest.since, data.now)}` : "No deletion is under way"}</span>
      </div>
      <div class={`tile ${data.stuck.total > 0 ? "bad" : isStale ? "" : "good"}`}>
        <span class="tile-title">Stuck</span>
        <span class="tile-number">{count(data.stuck.total)}</span>
        <span class="tile-note">
          {data.stuck.total > 0 ? `${data.stuck.total === 1 ? "root cause holds" : "root causes hold"} ${plural(data.stuck.objects, "object")}` : nothingStuck(data, isStale)}
        </span>
      </div>
      <div class="tile">
        <span class="tile-title">Due in 24 hours</span>
        <span class="tile-number">{count(data.due.total)}</span>
        <span class="tile-note">{next ? (next.inSeconds === 0 ? "the first is due now" : `the first in ${duration(next.inSeconds)}`) : "Nothing is due"}</span>
      </div>
    </div>
  );
}

/** Shows that nothing is stuck only if that is known. */
const nothingStuck = (data: Overview, isStale: boolean): string =>
  isStale ? `Nothing was stuck at ${clock(data.now)}` : data.unseen.length > 0 ? "Nothing that can be seen is stuck" : "Nothing is stuck";

function Stuck({ data, namespace, code, isStale }: { data: Overview; namespace: string; code: string; isStale: boolean }) {
  // An alert's link names a code: show the root causes with that code first, and open them.
  const items = [...data.stuck.items].sort((left, right) => Number(right.code === code) - Number(left.code === code));
  const isGone = code !== "" && items[0]?.code !== code;
  const card = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (code) card.current?.scrollIntoView();
  }, [code]);
  return (
    <div ref={card}>
      <Card title="Stuck" id="stuck" aside={<span class="quiet">by root cause, oldest first</span>}>
        {isGone && <p role="status">{words(code)}: nothing that is shown here is stuck for this reason now.</p>}
        {data.stuck.items.length === 0 ? (
          <Empty title={nothingStuck(data, isStale)}>
            {isStale ? "Whether that has changed is not known." : namespace ? `All deletions in ${namespace} are making progress.` : "All deletions are making progress."}
          </Empty>
        ) : (
          <ul class="rows">
            {items.map((row, place) => (
              <StuckItem key={`${code} ${row.code} ${row.subject}`} row={row} open={place === 0 || row.code === code} />
            ))}
            {data.stuck.total > data.stuck.items.length && (
              <li class="line quiet">
                and {plural(data.stuck.total - data.stuck.items.length, "more root cause")}: <code>kubegc stuck</code> prints all
              </li>
            )}
          </ul>
        )}
      </Card>
    </div>
  );
}

/** Reports whether the subject of a root cause is the name of a finalizer. */
const isFinalizer = (row: StuckRow): boolean => row.code.includes("Finalizer") && row.subject.length > 0;

export function StuckItem({ row, open: initially }: { row: StuckRow; open: boolean }) {
  const [open, setOpen] = useState(initially);
  const first = row.objects[0];
  const objects = row.objectCount ?? row.objects.length;
  const waiting = row.waitingCount ?? row.waiting.length;
  return (
    <li class="row stuck-row">
      <button type="button" class="row-head" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span class={`chevron ${open ? "open" : ""}`}>
          <Icon name="open" size={14} />
        </span>
        <span class="badge bad">{words(row.code)}</span>
        <span class="row-title">
          {first ? `${first.kind}/${first.name}` : row.subject}
          {objects > 1 && <span class="quiet"> and {plural(objects - 1, "more object")}</span>}
          {first && isFinalizer(row) && <span class="row-subject">{row.subject}</span>}
        </span>
        <span class="row-aside">{row.ageSeconds === null ? "" : duration(row.ageSeconds)}</span>
      </button>
      {open && (
        <div class="row-body">
          <p>{row.message}</p>
          <div class="objects">
            {row.objects.map((place) => (
              <ObjectLink key={place.uid || place.name} place={place} />
            ))}
            {objects > row.objects.length && <span class="quiet">and {count(objects - row.objects.length)} more</span>}
          </div>
          {waiting > 0 && (
            <>
              <h3>Holds up {plural(waiting, "object")}</h3>
              <div class="objects">
                {row.waiting.map((place) => (
                  <ObjectLink key={place.uid || place.name} place={place} />
                ))}
                {waiting > row.waiting.length && <span class="quiet">and {count(waiting - row.waiting.length)} more</span>}
              </div>
            </>
          )}
          {row.help.length > 0 && (
            <>
              <h3>What helps</h3>
              {row.help.map((command) => (
                <Command key={command} text={command} />
              ))}
            </>
          )}
          {row.force && (
            <details class="force">
              <summary>Remove by force</summary>
              {[row.force.command, ...row.force.others].map((command) => (
                <Command key={command} text={command} danger />
              ))}
              {row.force.unlisted > 0 && <p class="quiet">and likewise for {plural(row.force.unlisted, "more object")}</p>}
              <p class="warning-text">Leaves behind: {row.force.strands}</p>
            </details>
          )}
        </div>
      )}
    </li>
  );
}

function DueLine({ data }: { data: Overview }) {
  const { items, slots, total } = data.due;
  const most = Math.max(1, ...slots);
  const start = Date.parse(data.clock);
  return (
    <Card
      title="Due in the next 24 hours"
      id="due"
      aside={data.clockAheadSeconds > 0 && <span class="badge">clock {duration(data.clockAheadSeconds)} ahead</span>}
    >
      {items.length === 0 ? (
        <Empty title="Nothing is due">Finished Jobs with a TTL, signing requests, retention policies, expiry annotations and the ages of images appear here.</Empty>
      ) : (
        <>
          <svg class="timeline" viewBox="0 0 960 64" role="img" aria-label={`${plural(total, "deletion")} due in the next 24 hours`} preserveAspectRatio="none">
            {slots.map((value, slot) => {
              const tall = value === 0 ? 0 : Math.max(5, (value / most) * 52);
              return value > 0 && <rect key={slot} class="slot" x={slot * 20 + 2} y={56 - tall} width="16" height={tall} rx="2" />;
            })}
            <line class="axis" x1="0" x2="960" y1="58" y2="58" />
            {[0, 12, 24, 36].map((slot) => (
              <line key={slot} class="axis" x1={slot * 20 + 0.5} x2={slot * 20 + 0.5} y1="54" y2="62" />
            ))}
          </svg>
          <div class="timeline-labels" aria-hidden="true">
            {[0, 6, 12, 18, 24].map((ahead) => (
              <span key={ahead}>{ahead === 0 ? "now" : hour(start + ahead * 3_600_000)}</span>
            ))}
          </div>
          <DueList items={items} total={total} />
        </>
      )}
    </Card>
  );
}

const SHOWN_DUE = 6;

function DueList({ items, total }: { items: Due[]; total: number }) {
  const [all, setAll] = useState(false);
  const shown = all ? items : items.slice(0, SHOWN_DUE);
  return (
    <>
      <ul class="rows dense">
        {shown.map((item) => (
          <li key={`${item.object.uid || item.detail + item.object.name} ${item.at}`} class="line">
            <span class="when">{item.inSeconds === 0 ? "now" : `in ${duration(item.inSeconds)}`}</span>
            <ObjectLink place={item.object} />
            <span class="quiet grow">{item.detail}</span>
            <span class="badge">{due(item.code)}</span>
          </li>
        ))}
        {all && total > items.length && <li class="line quiet">and {count(total - items.length)} more, later than these</li>}
      </ul>
      {items.length > SHOWN_DUE && (
        <button type="button" class="more" onClick={() => setAll(!all)}>
          {all ? "Show fewer" : `Show ${count(items.length - SHOWN_DUE)} more${total > items.length ? ` of ${count(total)}` : ""}`}
        </button>
      )}
    </>
  );
}

function Collectors({ collected }: { collected: Collected[] }) {
  const busy = collected.filter((one) => one.total > 0).sort((left, right) => right.total - left.total);
  const idle = collected.length - busy.length;
  return (
    <Card title="Collected by" id="collectors" aside={<span class="quiet">last hour</span>}>
      {busy.length === 0 ? (
        <Empty title="Nothing was collected">{plural(collected.length, "collector")} had nothing to delete in the last hour.</Empty>
      ) : (
        <ul class="rows dense">
          {busy.map((one) => (
            <li key={one.controller} class="line">
              <span class="grow ellipsis" title={one.controller}>
                {collector(one.controller)}
              </span>
              <Sparkline values={one.minutes} label={`${collector(one.controller)}: ${plural(one.total, "deletion")}, by minute`} />
              <span class="number">{count(one.total)}</span>
            </li>
          ))}
          {idle > 0 && <li class="line quiet">{plural(idle, "other collector")} had nothing to delete</li>}
        </ul>
      )}
    </Card>
  );
}

const SHOWN_TERMINATING = 8;

function Terminating({ data }: { data: Overview }) {
  const { items, total } = data.terminating;
  const [all, setAll] = useState(false);
  const shown = all ? items : items.slice(0, SHOWN_TERMINATING);
  return (
    <Card title="Terminating" id="terminating" aside={<span class="quiet">oldest first</span>}>
      {items.length === 0 ? (
        <Empty title="No deletion is under way" />
      ) : (
        <>
          <ul class="rows dense">
            {shown.map(({ object, since: time, finalizers }) => (
              <li key={object.uid} class="line">
                <ObjectLink place={object} />
                <span class="quiet grow ellipsis" title={finalizers.join(", ")}>
                  {finalizers.join(", ")}
                </span>
                <span class="number">{since(time, data.now)}</span>
              </li>
            ))}
            {all && total > items.length && <li class="line quiet">and {count(total - items.length)} more, younger than these</li>}
          </ul>
          {total > SHOWN_TERMINATING && (
            <button type="button" class="more" onClick={() => setAll(!all)}>
              {all ? "Show fewer" : `Show more of ${count(total)}`}
            </button>
          )}
        </>
      )}
    </Card>
  );
}

const SHOWN_NODES = 6;

/** Describes removals on nodes in words. */
function removed({ images, containers, sandboxes, logDirectories, links }: Removed): string {
  const parts = [[images, "image"], [containers, "container"], [sandboxes, "sandbox"], [logDirectories + links, "log"]] as const;
  return parts.flatMap(([number, noun]) => (number > 0 ? [plural(number, noun)] : [])).join(", ") || "nothing";
}

function Nodes({ data }: { data: Overview }) {
  const { total, removed: all, items } = data.nodes;
  const [everything, setEverything] = useState(false);
  const shown = everything ? items : items.slice(0, SHOWN_NODES);
  return (
    <Card title="Freed on nodes" id="nodes" aside={<span class="quiet">last hour</span>}>
      <p>
        {bytes(all.freedBytes)} on {plural(total, "node")}: {removed(all)}
      </p>
      <ul class="rows dense">
        {shown.map((one) => (
          <li key={one.node} class="line">
            <span class="name">{one.node}</span>
            <span class="quiet grow">{removed(one.removed)}</span>
            {one.due > 0 && <span class="badge">{plural(one.due, "image")} due</span>}
            <span class="number">{bytes(one.removed.freedBytes)}</span>
          </li>
        ))}
        {everything && total > items.length && <li class="line quiet">and {plural(total - items.length, "more node")}</li>}
      </ul>
      {items.length > SHOWN_NODES && (
        <button type="button" class="more" onClick={() => setEverything(!everything)}>
          {everything ? "Show fewer" : `Show more of ${count(total)}`}
        </button>
      )}
    </Card>
  );
}
