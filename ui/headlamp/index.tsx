// kubegc in Headlamp: what is stuck and due as a page of its own, and why an object is, or is not, deleted among its details. The
// answers are those of /kubegc/v1, asked through Headlamp with the rights of its user.
import {
  ApiProxy,
  ConfigStore,
  registerDetailsViewSection,
  registerPluginSettings,
  registerRoute,
  registerSidebarEntry,
  registerSidebarEntryFilter,
  Utils,
  type PluginSettingsDetailsProps,
} from "@kinvolk/headlamp-plugin/lib";
import { Loader, NameValueTable, SectionBox, SimpleTable } from "@kinvolk/headlamp-plugin/lib/CommonComponents";
import { useEffect, useState, type ReactNode } from "react";
import type { Due, ObjectAnswer, Overview, Place, StuckRow } from "../src/api";
import { duration } from "../src/format";

/** The part of Headlamp's object that the plugin uses. */
interface KubeObject {
  jsonData: { apiVersion?: string; kind: string; metadata: { name: string; namespace?: string } };
  cluster?: string;
}

/** Interval between two queries, in milliseconds. */
const PERIOD = 10_000;
/** Interval of checks whether kubegc answers on a cluster, in milliseconds. */
const KNOWN_FOR = 60_000;
/** The name of this plugin, under which Headlamp stores its settings. */
const NAME = "kubegc";

/** The settings: the address of kubegc's page, for clusters whose API server is not kubegc's. */
const settings = new ConfigStore<{ page: string }>(NAME);
const useSettings = settings.useConfig();

/** Returns the address of the page, if the setting is valid as a link. */
const pageOf = (set: Partial<{ page: string }> | undefined) => {
  const page = set?.page?.trim().replace(/\/+$/, "") ?? "";
  return page.startsWith("https://") ? page : "";
};

function PageLink({ page, place, children }: { page: string; place: string; children: ReactNode }) {
  return (
    <a href={`${page}/ui${place}`} target="_blank" rel="noreferrer">
      {children}
    </a>
  );
}

function Settings({ data, onDataChange }: PluginSettingsDetailsProps): ReactNode {
  return (
    <label>
      Address of the page of kubegc, such as https://kubegc.example.com{" "}
      <input type="url" value={data?.page ?? ""} placeholder="https://" onChange={(event) => onDataChange?.({ ...data, page: event.currentTarget.value })} />
    </label>
  );
}

/** Sends a request to kubegc's API. */
function ask<T>(path: string, parameters: Record<string, string>, cluster?: string): Promise<T> {
  const query = new URLSearchParams(parameters).toString();
  // Headlamp's session does not end when this API refuses a request.
  return ApiProxy.request(`/kubegc/v1/${path}?${query}`, { method: "GET", cluster }, false) as Promise<T>;
}

interface Answered<T> {
  data: T | null;
  error: string | null;
}

/** A response that is requested again at intervals. */
function useAnswer<T>(load: () => Promise<T>, key: string): Answered<T> {
  const [answered, setAnswered] = useState<Answered<T>>({ data: null, error: null });
  useEffect(() => {
    let ended = false;
    let timer: ReturnType<typeof setTimeout>;
    const refresh = async () => {
      try {
        const data = await load();
        if (!ended) setAnswered({ data, error: null });
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        if (!ended) setAnswered((before) => ({ data: before.data, error: message }));
      }
      if (!ended) timer = setTimeout(refresh, PERIOD);
    };
    refresh();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [key]);
  return answered;
}

const title = (place: Place) => `${place.namespace ? `${place.namespace}/` : ""}${place.kind}/${place.name}`;

const named = (places: Place[], count: number) =>
  `${places.slice(0, 3).map(title).join(", ")}${count > 3 ? ` and ${count - 3} more` : ""}`;

function Commands({ row }: { row: StuckRow }) {
  return (
    <>
      {row.message}
      {row.help.map((command) => (
        <pre key={command}>{command}</pre>
      ))}
    </>
  );
}

/** The message shown if kubegc does not answer through Headlamp. */
function Unanswered({ error, page }: { error: string; page: string }) {
  if (page) {
    return (
      <SectionBox title="Garbage collection">
        <PageLink page={page} place="#/">
          What is collected, stuck and due
        </PageLink>
      </SectionBox>
    );
  }
  return (
    <p>
      kubegc does not answer through the API server of this cluster: {error}. That of `kubegc up` does; for `kubegc run`, set the address of its page in the
      settings of this plugin.
    </p>
  );
}

function OverviewPage(): ReactNode {
  const { data, error } = useAnswer(() => ask<Overview>("overview", {}), "overview");
  const page = pageOf(useSettings());
  if (!data) return error ? <Unanswered error={error} page={page} /> : <Loader title="Garbage collection" />;
  const collected = data.collected.reduce((sum, one) => sum + one.total, 0);
  const mode = data.mode.state === "Paused" ? `Paused by ${data.mode.by}: ${data.mode.reason}` : data.mode.state;
  return (
    <>
      <SectionBox title="Garbage collection">
        <NameValueTable
          rows={[
            { name: "Collectors", value: mode },
            { name: "Deleted in the last hour", value: collected },
            { name: "Being deleted", value: data.terminating.total },
            ...(page ? [{ name: "Page", value: <PageLink page={page} place="#/">{page}</PageLink> }] : []),
          ]}
        />
      </SectionBox>
      <SectionBox title={`Stuck (${data.stuck.total})`}>
        <SimpleTable
          emptyMessage="Nothing is stuck."
          data={data.stuck.items}
          columns={[
            { label: "Age", getter: (row: StuckRow) => (row.ageSeconds === null ? "-" : duration(row.ageSeconds)) },
            { label: "Objects", getter: (row: StuckRow) => named(row.objects, row.objectCount) },
            { label: "Cause", getter: (row: StuckRow) => row.code },
            { label: "What to do", getter: (row: StuckRow) => <Commands row={row} /> },
          ]}
        />
      </SectionBox>
      <SectionBox title={`Due within 24 hours (${data.due.total})`}>
        <SimpleTable
          emptyMessage="Nothing is due."
          data={data.due.items}
          columns={[
            { label: "In", getter: (due: Due) => duration(due.inSeconds) },
            { label: "Object", getter: (due: Due) => title(due.object) },
            { label: "Reason", getter: (due: Due) => due.message },
            { label: "Collector", getter: (due: Due) => due.collector },
          ]}
        />
      </SectionBox>
    </>
  );
}

/** Formats `Deployment` of `apps/v1` as `deployment.apps`, which the API accepts as kubectl does. */
const resourceOf = ({ apiVersion = "v1", kind }: KubeObject["jsonData"]) => {
  const group = apiVersion.includes("/") ? apiVersion.split("/")[0]! : "";
  return `${kind.toLowerCase()}.${group}`;
};

function ObjectSection({ resource }: { resource: KubeObject }): ReactNode {
  const { metadata } = resource.jsonData;
  const subject = { resource: resourceOf(resource.jsonData), namespace: metadata.namespace ?? "", name: metadata.name };
  const { data } = useAnswer(() => ask<ObjectAnswer>("object", subject, resource.cluster), JSON.stringify([subject, resource.cluster]));
  const page = pageOf(useSettings());
  const link = page && (
    <PageLink page={page} place={`#/?${new URLSearchParams({ object: `${subject.resource}/${subject.namespace}/${subject.name}` })}`}>
      Why it is, or is not, deleted
    </PageLink>
  );
  // If kubegc does not answer and no page is set, leave the details of an object unchanged.
  if (!data?.why) return link ? <SectionBox title="Garbage collection">{link}</SectionBox> : null;
  const { why } = data;
  const list = (texts: string[]) => texts.map((text) => <p key={text}>{text}</p>);
  const rows: { name: string; value: ReactNode }[] = [
    { name: "Conclusion", value: why.message },
    ...why.holds.map((row) => ({ name: row.code, value: <Commands row={row} /> })),
    { name: "Protected by", value: list(why.protections) },
    { name: "Owners", value: list(why.owners.map((owner) => `${owner.kind}/${owner.name}: ${owner.state}`)) },
    ...(link ? [{ name: "Page", value: link }] : []),
    { name: "What collectors did", value: list(data.journal.slice(0, 5).map((change) => `${change.time} ${change.verb}: ${change.message}`)) },
  ].filter(({ value }) => !Array.isArray(value) || value.length > 0);
  return (
    <SectionBox title="Garbage collection">
      <NameValueTable rows={rows} />
    </SectionBox>
  );
}

registerSidebarEntry({ parent: "cluster", name: NAME, label: "Garbage collection", url: "/kubegc", icon: "mdi:recycle" });
/** For each cluster, whether kubegc answers there, and the time of the last check. */
const answering = new Map<string, { answers: boolean; asked: number }>();

/** Reports whether kubegc has answered in the current cluster. Headlamp calls this whenever it draws its sidebar, and gets the last known result. */
function answers(): boolean {
  const cluster = Utils.getCluster() ?? "";
  const known = answering.get(cluster);
  if (!known || Date.now() - known.asked > KNOWN_FOR) {
    answering.set(cluster, { answers: known?.answers ?? false, asked: Date.now() });
    const learn = (answers: boolean) => answering.set(cluster, { answers, asked: Date.now() });
    ask("openapi.json", {}, cluster || undefined).then(
      () => learn(true),
      () => learn(false),
    );
  }
  return known?.answers ?? false;
}

registerPluginSettings(NAME, Settings, true);
registerSidebarEntryFilter((entry) => (entry.name !== NAME || pageOf(settings.get()) || answers() ? entry : null));
registerRoute({ path: "/kubegc", sidebar: NAME, name: NAME, exact: true, component: OverviewPage });
registerDetailsViewSection(({ resource }: { resource?: KubeObject }) => (resource?.jsonData ? <ObjectSection resource={resource} /> : null));
