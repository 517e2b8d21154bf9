// One object: why it is or is not deleted, what its deletion would lead to, what was done about it, its metadata.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { api, Refused, type ObjectAnswer, type Plan, type Policy, type Subject } from "./api";
import { ChangeLine } from "./feed";
import { bytes, count, plural, words } from "./format";
import type { Fates } from "./map";
import { StuckItem } from "./overview";
import { Empty, Failure, Icon, Loading } from "./parts";
import { go, useLive } from "./state";

const TABS = ["Why", "Plan a deletion", "Journal", "Metadata"] as const;
type Tab = (typeof TABS)[number];

export function Drawer({ subject, mayDelete, onFates }: { subject: Subject; mayDelete: boolean; onFates: (fates: Fates | null) => void }) {
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
    if (tab !== "Plan a deletion") onFates(null);
  }, [tab]);
  useEffect(() => () => onFates(null), [key]);
  const absent = error instanceof Refused && error.code === 404;
  const close = () => go({ object: null });
  const uid = data?.metadata?.metadata.uid ?? data?.why?.object.uid;
  const kind = data?.why?.object.kind ?? subject.resource;
  return (
    <aside class="drawer" aria-labelledby="drawer-title" onKeyDown={(event) => event.key === "Escape" && close()}>
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
          <button type="button" class="button small" onClick={() => go({ view: "map", uid })}>
            Show on map
          </button>
        )}
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
        {absent && tab !== "Plan a deletion" && <Empty title="It is gone">Nothing is known of it any more.</Empty>}
        {!data && !error && <Loading lines={5} />}
        {data && !absent && tab === "Why" && <WhyTab data={data} />}
        {tab === "Plan a deletion" && <PlanTab key={key} subject={subject} mayDelete={mayDelete} gone={absent || (data !== null && data.why === null)} onFates={onFates} />}
        {data && !absent && tab === "Journal" && <JournalTab data={data} />}
        {data && !absent && tab === "Metadata" && (data.yaml ? <pre class="yaml" tabIndex={0}>{data.yaml}</pre> : <Empty title="It is gone" />)}
      </div>
    </aside>
  );
}

function WhyTab({ data }: { data: ObjectAnswer }) {
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

const POLICIES: [Policy, string][] = [
  ["background", "Delete the object at once, its dependents after it"],
  ["foreground", "Delete the object after the dependents that block it"],
  ["orphan", "Delete the object and keep its dependents"],
];

type Step = { at: "plan" } | { at: "confirm" } | { at: "sending" } | { at: "following"; uids: string[]; objects: number };

function PlanTab(props: { subject: Subject; mayDelete: boolean; gone: boolean; onFates: (fates: Fates | null) => void }) {
  const { subject, mayDelete, gone, onFates } = props;
  const [policy, setPolicy] = useState<Policy>("background");
  const [plan, setPlan] = useState<Plan | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [step, setStep] = useState<Step>({ at: "plan" });
  const [attempt, setAttempt] = useState(0);
  const following = step.at === "following";
  useEffect(() => {
    if (following || gone) return;
    const abort = new AbortController();
    setPlan(null);
    setError(null);
    setStep({ at: "plan" });
    api.plan(subject, policy, abort.signal).then(
      (answer) => {
        setPlan(answer);
        onFates(new Map(answer.items.map((item) => [item.uid, item.fate])));
      },
      (failure: Error) => !abort.signal.aborted && setError(failure),
    );
    return () => abort.abort();
  }, [policy, attempt]);
  const send = async (typed: string) => {
    if (!plan) return;
    setStep({ at: "sending" });
    try {
      const { objects } = await api.delete(subject, plan, policy, typed);
      const uids = plan.items.filter((item) => item.fate !== "Released").map((item) => item.uid);
      setStep({ at: "following", uids, objects });
    } catch (failure) {
      setStep({ at: "plan" });
      setError(failure as Error);
      // What was shown is no longer true: the new plan is shown instead.
      if (failure instanceof Refused && failure.reason === "PlanChanged") setPlan(failure.details as Plan);
    }
  };
  if (step.at === "following") return <Following uids={step.uids} objects={step.objects} />;
  if (gone) return <Empty title="It is gone" />;
  return (
    <>
      <fieldset class="segments">
        <legend class="hidden">What happens to dependents</legend>
        {POLICIES.map(([name, meaning]) => (
          <label key={name} class={policy === name ? "chosen" : ""} title={meaning}>
            <input type="radio" name="policy" value={name} checked={policy === name} onChange={() => setPolicy(name)} />
            {words(name)}
          </label>
        ))}
      </fieldset>
      <p class="quiet">{POLICIES.find(([name]) => name === policy)![1]}. Nothing is deleted before you confirm.</p>
      {error && <Failure error={error} retry={() => setAttempt(attempt + 1)} />}
      {!plan && !error && <Loading lines={5} />}
      {plan && (
        <>
          <p class="plan-summary">{plan.summary}</p>
          <Warnings plan={plan} />
          <PlanItems plan={plan} />
          {!mayDelete ? (
            <p class="note">This page only shows: <code>kubegc run</code> was started without <code>--ui-orders</code>.</p>
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

function Warnings({ plan }: { plan: Plan }) {
  return (
    <>
      {plan.hangs.length > 0 && (
        <div class="note bad">
          <h3>Would hang</h3>
          <ul class="plain">{plan.hangs.map((line) => <li key={line}>{line}</li>)}</ul>
        </div>
      )}
      {plan.lostVolumes.length > 0 && (
        <div class="note bad">
          <h3>Storage is lost</h3>
          <ul class="plain">
            {plan.lostVolumes.map((volume) => (
              <li key={volume.name}>
                {volume.name} of claim {volume.claim}, {bytes(volume.bytes)}
              </li>
            ))}
          </ul>
        </div>
      )}
      {plan.recreated.length > 0 && (
        <div class="note">
          <h3>Comes again</h3>
          <ul class="plain">{plan.recreated.slice(0, 20).map((line) => <li key={line}>{line}</li>)}</ul>
        </div>
      )}
      <Lines title="Not seen" lines={plan.unseen} />
    </>
  );
}

const SHOWN_OF_KIND = 8;

function PlanItems({ plan }: { plan: Plan }) {
  const groups = new Map<string, Plan["items"]>();
  for (const item of plan.items) {
    const key = `${item.fate}/${item.kind}`;
    groups.set(key, [...(groups.get(key) ?? []), item]);
  }
  return (
    <ul class="rows dense plan-items">
      {[...groups].map(([key, items]) => (
        <li key={key} class="plan-group">
          <span class={`badge fate-${items[0]!.fate}`}>{words(items[0]!.fate)}</span>
          <span class="grow">
            <strong>{plural(items.length, items[0]!.kind)}</strong>
            <span class="objects">
              {items.slice(0, SHOWN_OF_KIND).map((item) => (
                <span class="name" key={item.uid} title={item.remarks.join("; ")}>
                  {item.name}
                </span>
              ))}
              {items.length > SHOWN_OF_KIND && <span class="quiet">and {count(items.length - SHOWN_OF_KIND)} more</span>}
            </span>
          </span>
        </li>
      ))}
      {plan.omitted > 0 && <li class="quiet">and {plural(plan.omitted, "more object")}</li>}
    </ul>
  );
}

function Confirm(props: { plan: Plan; name: string; sending: boolean; onCancel: () => void; onSend: (typed: string) => void }) {
  const [typed, setTyped] = useState("");
  const { plan, name } = props;
  const ready = !props.sending && (!plan.needsName || typed === name);
  const first = useRef<HTMLElement | null>(null);
  // Before it is painted: who types at once types into it.
  useLayoutEffect(() => first.current?.focus(), []);
  return (
    <form
      class="confirm"
      aria-label="Confirm the deletion"
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

function Following({ uids, objects }: { uids: string[]; objects: number }) {
  const { data } = useLive(() => api.remaining(uids), ["remaining", uids[0], uids.length]);
  const remaining = data?.remaining ?? uids.length;
  const done = remaining === 0;
  return (
    <div class="following" role="status">
      <p class="plan-summary">{done ? "Deleted." : "The deletion is under way."}</p>
      <progress max={uids.length} value={uids.length - remaining} aria-label="Objects deleted" />
      <p class="quiet">
        {count(uids.length - remaining)} of {plural(uids.length, "object")} gone
        {objects > uids.length && `, of ${count(objects)} in all`}.{!done && " It continues in the cluster when this is closed."}
      </p>
    </div>
  );
}
