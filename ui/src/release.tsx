// The finalizers of an object that is being deleted: what depends on each, and the order to remove one by hand.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { api, Refused, type Release, type Subject } from "./api";
import { Failure, Loading } from "./parts";

interface FinalizersProperties {
  subject: Subject;
  finalizers: string[];
  /** Whether the page takes orders. */
  mayOrder: boolean;
  onRemoved: () => void;
}

/** What was removed stays written here while the object waits for its other finalizers. */
export function Finalizers({ subject, finalizers, mayOrder, onRemoved }: FinalizersProperties) {
  const [open, setOpen] = useState("");
  const [said, setSaid] = useState("");
  const removed = (finalizer: string, unrecorded: string | null) => {
    setOpen("");
    setSaid(`${finalizer} was removed.${unrecorded === null ? "" : ` No Event about it could be written: ${unrecorded}.`}`);
    onRemoved();
  };
  return (
    <section aria-labelledby="finalizers">
      <h3 id="finalizers">Finalizers</h3>
      {said && <p role="status">{said}</p>}
      <ul class="rows finalizers">
        {finalizers.map((finalizer) => (
          <li key={finalizer} class="row">
            <div class="finalizer-head">
              <span class="name">{finalizer}</span>
              <button
                type="button"
                class="button small"
                aria-expanded={open === finalizer}
                aria-label={open === finalizer ? `Close ${finalizer}` : `Release ${finalizer}…`}
                onClick={() => setOpen(open === finalizer ? "" : finalizer)}
              >
                {open === finalizer ? "Close" : "Release…"}
              </button>
            </div>
            {open === finalizer && <ReleasePanel subject={subject} finalizer={finalizer} mayOrder={mayOrder} onRemoved={(unrecorded) => removed(finalizer, unrecorded)} />}
          </li>
        ))}
      </ul>
    </section>
  );
}

type Step = "read" | "confirm" | "sending";

interface PanelProperties {
  subject: Subject;
  finalizer: string;
  mayOrder: boolean;
  onRemoved: (unrecorded: string | null) => void;
}

function ReleasePanel({ subject, finalizer, mayOrder, onRemoved }: PanelProperties) {
  const [release, setRelease] = useState<Release | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [step, setStep] = useState<Step>("read");
  const [attempt, setAttempt] = useState(0);
  const [force, setForce] = useState(false);
  useEffect(() => {
    const abort = new AbortController();
    setError(null);
    setStep("read");
    api.finalizer(subject, finalizer, abort.signal).then(setRelease, (failure: Error) => !abort.signal.aborted && setError(failure));
    return () => abort.abort();
  }, [attempt]);
  const send = async () => {
    if (!release) return;
    setStep("sending");
    setError(null);
    try {
      onRemoved((await api.release(subject, release, force)).unrecorded);
    } catch (failure) {
      setStep("read");
      setForce(false);
      setError(failure as Error);
      // What was shown is no longer true: what is true now is shown instead.
      if (failure instanceof Refused && ["ObjectChanged", "NeedsForce"].includes(failure.reason)) setRelease(failure.details as Release);
    }
  };
  const isReady = release !== null && (release.objection === null || force);
  return (
    <div class="release">
      {error && <Failure error={error} retry={() => setAttempt(attempt + 1)} />}
      {!release && !error && <Loading lines={4} />}
      {release && (
        <>
          <dl class="facts">
            {release.lines.map(({ heading, text }, place) => (
              <div key={`${place} ${heading}`} class={heading === "Leaks outside" ? "bad" : ""}>
                <dt>{heading}</dt>
                <dd>{text}</dd>
              </div>
            ))}
            {release.unseen.map((text) => (
              <div key={text}>
                <dt>Not seen</dt>
                <dd>{text}</dd>
              </div>
            ))}
          </dl>
          {release.objection !== null && (
            <p class="note bad">
              <strong>Not removed by this page:</strong> {release.objection}.
            </p>
          )}
          {!mayOrder ? (
            <p class="note">
              Read-only: <code>kubegc run</code> was started without <code>--ui-orders</code>.
            </p>
          ) : (
            <>
              {release.objection !== null && (
                <label class="check">
                  <input type="checkbox" checked={force} disabled={step === "sending"} onChange={(event) => (setForce(event.currentTarget.checked), setStep("read"))} />
                  <span>Remove it all the same</span>
                </label>
              )}
              {step === "read" ? (
                <div class="buttons">
                  <button type="button" class="button danger" disabled={!isReady} onClick={() => setStep("confirm")}>
                    Remove the finalizer…
                  </button>
                </div>
              ) : (
                <Confirm release={release} name={subject.name} sending={step === "sending"} onCancel={() => setStep("read")} onSend={send} />
              )}
            </>
          )}
        </>
      )}
    </div>
  );
}

function Confirm(props: { release: Release; name: string; sending: boolean; onCancel: () => void; onSend: () => void }) {
  const { release, name, sending } = props;
  const first = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => first.current?.focus(), []);
  return (
    <form
      class="confirm"
      aria-label="Confirm the removal"
      onKeyDown={(event) => {
        if (event.key !== "Escape" || sending) return;
        // It leaves the confirmation alone, and not the object with it.
        event.stopPropagation();
        props.onCancel();
      }}
      onSubmit={(event) => {
        event.preventDefault();
        if (!sending) props.onSend();
      }}
    >
      <p>
        Remove <strong>{release.finalizer}</strong> from <strong>{name}</strong>? It is written down with your name.
      </p>
      <div class="buttons">
        <button type="submit" class="button danger" disabled={sending} ref={first}>
          {sending ? "Removing…" : "Remove it"}
        </button>
        <button type="button" class="button" onClick={props.onCancel} disabled={sending}>
          Cancel
        </button>
      </div>
    </form>
  );
}
