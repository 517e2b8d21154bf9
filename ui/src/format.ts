// Formats numbers, times and names for people.

const numbers = new Intl.NumberFormat("en-US");

export const count = (value: number): string => numbers.format(value);

export const plural = (value: number, noun: string): string => {
  if (value === 1) return `1 ${noun}`;
  const many = /(s|x|ch)$/.test(noun) ? `${noun}es` : /[^aeiou]y$/.test(noun) ? `${noun.slice(0, -1)}ies` : `${noun}s`;
  return `${count(value)} ${many}`;
};

/** Formats an age as kubectl prints it, in its largest unit. */
export function duration(seconds: number): string {
  const value = Math.max(0, Math.round(seconds));
  if (value < 120) return `${value}s`;
  if (value < 7200) return `${Math.round(value / 60)}m`;
  if (value < 172_800) return `${Math.round(value / 3600)}h`;
  return `${Math.round(value / 86_400)}d`;
}

export const since = (time: string | null, now: string): string =>
  time ? duration((Date.parse(now) - Date.parse(time)) / 1000) : "–";

export const clock = (time: string): string =>
  new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

export const hour = (time: number): string =>
  new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });

/** Returns the name of a collector without the part that all of them share. */
export const collector = (name: string): string => name.replace(/-controller$/, "").replace(/-/g, " ");

/** Splits a code such as `OwnersAbsent` into words. */
export const words = (code: string): string =>
  code
    .replace(/([a-z])([A-Z])/g, "$1 $2")
    .replace(/([A-Z])([A-Z][a-z])/g, "$1 $2")
    .split(" ")
    .map((word, place) => (/^[A-Z]{2,}$/.test(word) ? word : place === 0 ? word[0]!.toUpperCase() + word.slice(1) : word.toLowerCase()))
    .join(" ");

/** Returns the reason why an object will be deleted; the codes of verdicts would say that the time is already over. */
const DUE: Record<string, string> = {
  TTLExpired: "TTL",
  ExpiredByAnnotation: "Annotation",
  DueByPolicy: "Policy",
  ImageUnusedTooLong: "Maximum age",
  SigningRequestExpired: "Signing request",
  PodCertificateRequestExpired: "Certificate request",
  LegacyTokenExpired: "Unused token",
};

export const due = (code: string): string => DUE[code] ?? words(code);

export function bytes(value: number | null): string {
  if (value === null) return "unknown size";
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${Math.round(value * 10) / 10} ${units[unit]}`;
}
