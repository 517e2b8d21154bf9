// One object: why it is or is not deleted, what its deletion would lead to, past actions on it, and its metadata.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { api, Refused, type Condition, type LostVolume, type ObjectAnswer, type Plan, type Policy, type Subject } from "./api";
import { ChangeLine } from "./feed";
import { bytes, count, plural, words } from "./format";
import { StuckItem } from "./overview";
import { Empty, Failure, Icon, Loading, ObjectLink } from "./parts";
import { Finalizers } from "./release";
import { go, useLive } from "./state";

const TABS = ["Why", "Plan a deletion", "Journal", "Metadata"] as const;
type Tab = (typeof TABS)[number];

interface DrawerProperties {
  subject: Subject;
  mayDelete: boolean;
  onPlan: (plan: string | null) => void;
  /** True if the view behind is shown on a narrow screen. */
  folded: boolean;
  onFold: (folded: boolean) => void;
}

export function Drawer({ subject, mayDelete, onPlan, folded, onFold }: DrawerProperties) {
  const { data, error, refresh } = useLive(
    (signal) => api.object(subject, signal),
    ["object", subject.resource, subject.namespace, subject.name],
  );
  const [tab, setTab] = useState<Tab>("Why");
  const heading = useRef<HTMLHeadingElement>(null);
  const came = useRef<Element | null>(null);
  const key = `${subject.resource}/${subject.namespace}/${subject.name}`;
  useEffect(() => {
    came.current ??= document.activeElement;
    heading.current?.focus();
    setTab("Why");
  }, [key]);
  useEffect(() => () => (came.current as HTMLElement | null)?.focus?.(), []);
  useEffect(() => {
    if (tab !== "Plan a deletion") onPlan(null);
  }, [tab]);
  useEffect(() => () => onPlan(null), [key]);
  const absent = error instanceof Refused && error.code === 404;
  // Only an object that was shown before can be reported as gone.
  const seen = useRef("");
  if (data && !absent) seen.current = key;
  const wasThere = seen.current === key;
  const close = () => go({ object: null });
  const uid = data?.metadata?.metadata.uid ?? data?.why?.object.uid;
  const show = () => {
    go({ view: "map", uid });
    onFold(true);
  };
  const kind = data?.why?.object.kind ?? subject.resource;
  return (
    <aside class={`drawer ${folded ? "folded" : ""}`} aria-labelledby="drawer-title" onKeyDown={(event) => event.key === "Escape" && close()}>
      <header class="drawer-head">
        <div class="grow">
          <p class="quiet">
            {kind}
            {subject.namespace && ` in ${subject.namespace}`}
          </p>
          <h2 id="drawer-title" tabIndex={-1} ref={heading}>
            {subject.name}
          </h2>
        </div>
        {uid && data?.why && (
          <button type="button" class="button small on-map" onClick={show}>
            Show on map
          </button>
        )}
        <button type="button" class="button small unfold" onClick={() => onFold(false)}>
          Show the object
        </button>
        <button type="button" class="icon-button" aria-label="Close" onClick={close}>
          <Icon name="close" />
        </button>
      </header>
      <div class="tabs" role="tablist" aria-label="About the object">
        {TABS.map((name, place) => (
          <button
            type="button"
            key={name}
            id={`tab-${place}`}
            role="tab"
            aria-selected={tab === name}
            aria-controls="tab-panel"
            tabIndex={tab === name ? 0 : -1}
            onClick={() => setTab(name)}
            onKeyDown={(event) => {
              const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
              if (!step) return;
              const next = (place + step + TABS.length) % TABS.length;
              setTab(TABS[next]!);
              document.getElementById(`tab-${next}`)?.focus();
            }}
          >
            {name}
          </button>
        ))}
      </div>
      <div class="drawer-body" id="tab-panel" role="tabpanel" aria-labelledby={`tab-${TABS.indexOf(tab)}`} tabIndex={0}>
        {error && !absent && <Failure error={error} retry={refresh} />}
        {absent && tab !== "Plan a deletion" && (wasThere ? <Empty title="It is gone">It was deleted while this was open.</Empty> : <NotFound subject={subject} />)}
        {!data && !error && <Loading lines={5} />}
        {data && !absent && tab === "Why" && <WhyTab key={key} subject={subject} data={data} mayOrder={mayDelete} refresh={refresh} />}
        {tab === "Plan a deletion" && <PlanTab key={key} subject={subject} mayDelete={mayDelete} gone={absent || (data !== null && data.why === null)} wasThere={wasThere} onPlan={onPlan} />}
        {data && !absent && tab === "Journal" && <JournalTab data={data} />}
        {data && !absent && tab === "Metadata" && (data.yaml ? <pre class="yaml" tabIndex={0}>{data.yaml}</pre> : <Empty title="It is gone" />)}
      </div>
    </aside>
  );
}

function NotFound({ subject }: { subject: Subject }) {
  return (
    <Empty title="There is no such object">
      {subject.name} does not exist{subject.namespace && ` in ${subject.namespace}`}, and the journal in memory does not name it: it was deleted before that begins, or never existed.
    </Empty>
  );
}

/** Conditions that are healthy when false. */
const ADVERSE = /Failed|Failure|Pressure|Unavailable|Degraded|Stalled|Remaining|Terminating/;

function Status({ status }: { status: ObjectAnswer["status"] }) {
  if (!status || (!status.phase && status.conditions.length === 0)) return null;
  const isGood = ({ type, status: value }: Condition) => (value === "True") !== ADVERSE.test(type);
  return (
    <section>
      <h3>Status{status.phase && `: ${status.phase}`}</h3>
      <ul class="plain conditions">
        {status.conditions.map((one) => (
          <li key={one.type}>
            <span class={`condition ${one.status === "Unknown" ? "" : isGood(one) ? "ready" : "failed"}`}>{one.type}</span> {one.status}
            {one.reason && <span class="quiet"> · {words(one.reason)}</span>}
            {one.message && <p class="quiet">{one.message}</p>}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Dependents({ dependents }: { dependents: ObjectAnswer["dependents"] }) {
  if (!dependents) return null;
  const { total, items } = dependents;
  return (
    <section>
      <h3>{total === 0 ? "Dependents" : plural(total, "dependent")}</h3>
      {total === 0 ? (
        <p class="quiet">None that you can see: nothing is deleted after it.</p>
      ) : (
        <div class="objects">
          {items.map((place) => (
            <ObjectLink key={place.uid} place={place} showNamespace={false} />
          ))}
          {total > items.length && <span class="quiet">and {count(total - items.length)} more</span>}
        </div>
      )}
    </section>
  );
}

function WhyTab({ subject, data, mayOrder, refresh }: { subject: Subject; data: ObjectAnswer; mayOrder: boolean; refresh: () => void }) {
  const { why } = data;
  if (!why) {
    const last = data.journal[0];
    return <Empty title="It is gone">{last ? `It was collected: ${words(last.verdict)}. The journal has the evidence.` : undefined}</Empty>;
  }
  const bad = why.holds.length > 0;
  return (
    <>
      <div class={`verdict ${bad ? "bad" : why.conclusion === "OwnerLives" || why.conclusion === "NoOwners" ? "good" : ""}`}>
        <span class="badge">{words(why.conclusion)}</span>
        <p>{why.message}</p>
      </div>
      {why.holds.length > 0 && (
        <section>
          <h3>What holds it</h3>
          <ul class="rows">
            {why.holds.map((row) => (
              <StuckItem key={`${row.code} ${row.subject}`} row={row} open />
            ))}
          </ul>
        </section>
      )}
      {data.metadata?.metadata.deletionTimestamp && data.finalizers.length > 0 && (
        <Finalizers subject={subject} finalizers={data.finalizers} mayOrder={mayOrder} onRemoved={refresh} />
      )}
      {why.owners.length > 0 && (
        <section>
          <h3>Owners</h3>
          <ul class="plain">
            {why.owners.map((owner) => (
              <li key={owner.uid}>
                <span class="object">
                  <span class="kind">{owner.kind}</span> <span class="name">{owner.name}</span>
                </span>{" "}
                <span class="quiet">
                  {owner.state}
                  {owner.evidence && `: ${owner.evidence}`}
                </span>
              </li>
            ))}
          </ul>
        </section>
      )}
      <Dependents dependents={data.dependents} />
      <Status status={data.status} />
      <Lines title="Protected by" lines={why.protections} />
      <Lines title="Deletion asked for by" lines={why.requestedBy} />
      <Lines title="Not seen" lines={why.unseen} />
    </>
  );
}

function Lines({ title, lines }: { title: string; lines: string[] }) {
  if (lines.length === 0) return null;
  return (
    <section>
      <h3>{title}</h3>
      <ul class="plain">
        {lines.map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
    </section>
  );
}

function JournalTab({ data }: { data: ObjectAnswer }) {
  if (data.journal.length === 0) return <Empty title="The collectors did nothing about it">The journal in memory has the newest 4,096 changes.</Empty>;
  return (
    <ol class="feed-lines whole">
      {data.journal.map((change) => (
        <ChangeLine key={change.number} change={change} />
      ))}
    </ol>
  );
}

/** The contents of a namespace are deleted with it, whatever the propagation policy. */
const OF_NAMESPACE = "Delete the namespace and everything in it";
const POLICIES: [Policy, string][] = [
  ["background", "Delete the object at once, its dependents after it"],
  ["foreground", "Delete the object after the dependents that block it"],
  ["orphan", "Delete the object and keep its dependents"],
];

type Step = { at: "plan" } | { at: "confirm" } | { at: "sending" } | { at: "following"; deletion: string };

function PlanTab(props: { subject: Subject; mayDelete: boolean; gone: boolean; wasThere: boolean; onPlan: (plan: string | null) => void }) {
  const { subject, mayDelete, gone, onPlan } = props;
  const [policy, setPolicy] = useState<Policy>("background");
  const [plan, setPlan] = useState<Plan | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [step, setStep] = useState<Step>({ at: "plan" });
  const [attempt, setAttempt] = useState(0);
  const following = step.at === "following";
  const isNamespace = subject.resource === "namespaces";
  useEffect(() => {
    if (following || gone) return;
    const abort = new AbortController();
    setPlan(null);
    setError(null);
    setStep({ at: "plan" });
    api.plan(subject, policy, abort.signal).then(
      (answer) => {
        setPlan(answer);
        onPlan(answer.id);
      },
      (failure: Error) => !abort.signal.aborted && setError(failure),
    );
    return () => abort.abort();
  }, [policy, attempt]);
  const send = async (typed: string) => {
    if (!plan) return;
    setStep({ at: "sending" });
    try {
      const { deletion } = await api.delete(subject, plan, policy, typed);
      setStep({ at: "following", deletion });
    } catch (failure) {
      setStep({ at: "plan" });
      setError(failure as Error);
      // The plan has changed since it was shown, so show the new one instead.
      if (failure instanceof Refused && failure.reason === "PlanChanged") {
        const changed = failure.details as Plan;
        setPlan(changed);
        onPlan(changed.id);
      }
    }
  };
  if (step.at === "following") return <Following deletion={step.deletion} />;
  if (gone) return props.wasThere ? <Empty title="It is gone" /> : <NotFound subject={subject} />;
  return (
    <>
      {!isNamespace && (
        <fieldset class="segments">
          <legend class="hidden">What happens to dependents</legend>
          {POLICIES.map(([name, meaning]) => (
            <label key={name} class={policy === name ? "chosen" : ""} title={meaning}>
              <input type="radio" name="policy" value={name} checked={policy === name} onChange={() => setPolicy(name)} />
              {words(name)}
            </label>
          ))}
        </fieldset>
      )}
      <p class="quiet">{isNamespace ? OF_NAMESPACE : POLICIES.find(([name]) => name === policy)![1]}. Nothing is deleted before you confirm.</p>
      {error && <Failure error={error} retry={() => setAttempt(attempt + 1)} />}
      {!plan && !error && <Loading lines={5} />}
      {plan && (
        <>
          <p class="plan-summary">{plan.summary}</p>
          <Warnings plan={plan} />
          <PlanItems plan={plan} />
          {!mayDelete ? (
            <p class="note">Read-only: <code>kubegc run</code> was started without <code>--ui-orders</code>.</p>
          ) : step.at === "plan" ? (
            <button type="button" class="button danger" onClick={() => setStep({ at: "confirm" })}>
              Delete {plural(plan.objects, "object")}…
            </button>
          ) : (
            <Confirm plan={plan} name={subject.name} sending={step.at === "sending"} onCancel={() => setStep({ at: "plan" })} onSend={send} />
          )}
        </>
      )}
    </>
  );
}

/** Returns the warnings that a user should read before carrying out a plan, worst first, as `kubegc plan` prints them. */
function Warnings({ plan }: { plan: Plan }) {
  const volume = ({ name, claim, bytes: size }: LostVolume) => `${name} of claim ${claim}${size === null ? "" : `, ${bytes(size)}`}`;
  return (
    <>
      <Note title="Would be refused" lines={plan.refused} bad />
      <Note title="Would get stuck" lines={plan.stuck} bad />
      <Note title="Storage is lost" lines={plan.lostVolumes.map(volume)} bad />
      <Note title="Storage is lost when its claim is released" lines={plan.lostWhenReleased.map(volume)} bad />
      <Note title="Comes again" lines={plan.recreated} />
      <Note title="Admission webhooks that may refuse" lines={plan.webhooks} />
      <Note title="Volumes that stay without a claim" lines={plan.retainedVolumes} />
      <Note title="Owners that cannot be looked up and count as living" lines={plan.assumedLiving} />
      <Lines title="Not seen" lines={plan.unseen} />
    </>
  );
}

/** Maximum number of lines shown of a note. */
const SHOWN_LINES = 20;

function Note({ title, lines, bad = false }: { title: string; lines: string[]; bad?: boolean }) {
  if (lines.length === 0) return null;
  return (
    <div class={`note ${bad ? "bad" : ""}`}>
      <h3>{title}</h3>
      <ul class="plain">
        {lines.slice(0, SHOWN_LINES).map((line) => (
          <li key={line}>{line}</li>
        ))}
        {lines.length > SHOWN_LINES && <li class="quiet">and {count(lines.length - SHOWN_LINES)} more</li>}
      </ul>
    </div>
  );
}

function PlanItems({ plan }: { plan: Plan }) {
  return (
    <ul class="rows dense plan-items">
      {plan.groups.map(({ fate, kind, total, items }) => (
        <li key={`${fate}/${kind}`} class="plan-group">
          <span class={`badge fate-${fate}`}>{words(fate)}</span>
          <span class="grow">
            <strong>{plural(total, kind)}</strong>
            <span class="objects">
              {items.map((item) => (
                <span class="name" key={item.uid} title={item.remarks.join("; ")}>
                  {item.name}
                </span>
              ))}
              {total > items.length && <span class="quiet">and {count(total - items.length)} more</span>}
            </span>
          </span>
        </li>
      ))}
    </ul>
  );
}

function Confirm(props: { plan: Plan; name: string; sending: boolean; onCancel: () => void; onSend: (typed: string) => void }) {
  const [typed, setTyped] = useState("");
  const { plan, name } = props;
  const ready = !props.sending && (!plan.needsName || typed === name);
  const first = useRef<HTMLElement | null>(null);
  // Focus before painting, so that immediate typing goes into the field.
  useLayoutEffect(() => first.current?.focus(), []);
  return (
    <form
      class="confirm"
      aria-label="Confirm the deletion"
      onKeyDown={(event) => {
        if (event.key !== "Escape" || props.sending) return;
        // Escape closes only the confirmation, not the object as well.
        event.stopPropagation();
        props.onCancel();
      }}
      onSubmit={(event) => {
        event.preventDefault();
        if (ready) props.onSend(typed);
      }}
    >
      {plan.needsName && (
        <label>
          <span>
            Type <strong>{name}</strong> to delete {plural(plan.objects, "object")}
            {plan.lostVolumes.length > 0 && ` and lose ${plural(plan.lostVolumes.length, "volume")}`}
          </span>
          <input ref={(element) => void (first.current = element)} type="text" autocomplete="off" spellcheck={false} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
      )}
      <div class="buttons">
        <button type="submit" class="button danger" disabled={!ready} ref={(element) => void (plan.needsName || (first.current = element))}>
          {props.sending ? "Deleting…" : `Delete ${plural(plan.objects, "object")}`}
        </button>
        <button type="button" class="button" onClick={props.onCancel} disabled={props.sending}>
          Cancel
        </button>
      </div>
    </form>
  );
}

/** Interval of queries about a deletion in progress, in milliseconds. */
const FOLLOWED_EVERY = 2000;

function Following({ deletion }: { deletion: string }) {
  const { data, error, refresh } = useLive((signal) => api.remaining(deletion, signal), ["remaining", deletion]);
  const isOver = data?.remaining === 0;
  useEffect(() => {
    if (isOver) return;
    const timer = window.setInterval(refresh, FOLLOWED_EVERY);
    return () => clearInterval(timer);
  }, [deletion, isOver]);
  if (!data) return error ? <Failure error={error} retry={refresh} /> : <Loading lines={2} />;
  const { objects, remaining, unfollowed, stuck, causes } = data;
  const state = isOver ? "Deleted." : stuck === remaining ? `${plural(stuck, "object")} stuck.` : "The deletion is under way.";
  return (
    <div class="following">
      <div role="status">
        <p class="plan-summary">{state}</p>
        <p class="quiet">
          {count(objects - remaining)} of {plural(objects, "object")} gone
          {stuck > 0 && stuck < remaining && `, ${count(stuck)} stuck`}.{!isOver && " It continues in the cluster when this is closed."}
        </p>
      </div>
      <progress max={objects} value={objects - remaining} aria-label="Objects deleted" />
      {unfollowed > 0 && <p class="note">{plural(unfollowed, "object")} that you may not list {unfollowed === 1 ? "is" : "are"} not followed.</p>}
      {causes.items.length > 0 && (
        <section>
          <h3>What holds them</h3>
          <ul class="rows">
            {causes.items.map((row) => (
              <StuckItem key={`${row.code} ${row.subject}`} row={row} open />
            ))}
            {causes.total > causes.items.length && <li class="line quiet">and {plural(causes.total - causes.items.length, "more root cause")}</li>}
          </ul>
        </section>
      )}
    </div>
  );
}
