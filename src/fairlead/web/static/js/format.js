// Numbers as people read them: three digits and a unit that fits. The same rules as report/units.py.

export const MISSING = "–";
const DURATION = [[0, 1, "s"], [120, 60, "min"], [7200, 3600, "h"], [259200, 86400, "d"]];
const ENERGY = [[0, 1, "J"], [3.6e3, 3.6e3, "Wh"], [3.6e6, 3.6e6, "kWh"], [3.6e9, 3.6e9, "MWh"], [3.6e12, 3.6e12, "GWh"]];
const POWER = [[0, 1, "W"], [1e3, 1e3, "kW"], [1e6, 1e6, "MW"]];
const MEMORY = [[0, 1, "MiB"], [1024, 1024, "GiB"], [1048576, 1048576, "TiB"]];

export function digits(value, significant = 3) {
  if (!Number.isFinite(value)) return MISSING;
  if (value === 0) return "0";
  const places = Math.max(0, significant - 1 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en-US", { minimumFractionDigits: Math.min(places, 8), maximumFractionDigits: Math.min(places, 8) });
}

/** The unit that suits a value: what to divide by, and its name. */
export function fitting(value, scale) {
  let found = scale[0];
  for (const one of scale) if (Math.abs(value) >= one[0]) found = one;
  return { by: found[1], unit: found[2] };
}

function scaled(value, scale) {
  if (value === null || value === undefined || !Number.isFinite(value)) return MISSING;
  const { by, unit } = fitting(value, scale);
  return `${digits(value / by)} ${unit}`;
}

export const SCALES = { duration: DURATION, energy: ENERGY, power: POWER };
export const duration = (seconds) => scaled(seconds, DURATION);
export const energy = (joules) => scaled(joules, ENERGY);
export const power = (watts) => scaled(watts, POWER);
export const memory = (mib) => scaled(mib, MEMORY);
export const count = (value) => (value === null || value === undefined ? MISSING : Math.round(value).toLocaleString("en-US"));
export const percent = (frac) => (frac === null || frac === undefined ? MISSING : `${Math.round(100 * frac)} %`);
export const hours = (seconds) => (Number.isFinite(seconds) ? `${digits(seconds / 3600)} h` : MISSING);

export function money(usd) {
  if (usd === null || usd === undefined || !Number.isFinite(usd)) return MISSING;
  const places = Math.abs(usd) < 100 ? 2 : 0;
  return `$${usd.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places })}`;
}

/** `1:05:09` or `5:09`, and days where it is long: for what is under way. */
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole >= 259200) return duration(whole);
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const [hour, minute, second] = parts.map((part) => String(part).padStart(2, "0"));
  return parts[0] ? `${parts[0]}:${minute}:${second}` : `${parts[1]}:${second}`;
}

const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });

/** A moment as time of day, with the day where it is not today. */
export function moment(atS) {
  if (atS === null || atS === undefined) return MISSING;
  const date = new Date(1000 * atS);
  return date.toDateString() === new Date().toDateString() ? TIME.format(date) : DAY.format(date);
}

export function ago(seconds) {
  if (seconds < 2) return "now";
  return `${duration(Math.round(seconds))} ago`;
}

export function fromNow(seconds) {
  return Math.abs(seconds) < 2 ? "now" : seconds > 0 ? `in ${duration(Math.round(seconds))}` : ago(-seconds);
}

export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
