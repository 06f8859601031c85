// The cluster as this page knows it. Updates tell what is new since a version; applied in order they give the whole.

const EVENTS_KEPT = 500;

export function emptyModel() {
  return {
    epoch: "", version: -1, lastEvent: -1, nowAtS: 0, cluster: null, gpus: [], labels: new Map(), summary: null,
    events: [], hasGap: false, jobs: 0,
  };
}

/** What a GPU's row means. */
export function gpuOf(row) {
  const [state, busy, memoryMib, watts, celsius, guard, isDrained, jobs] = row;
  return { state, busy, memoryMib, watts, celsius, guard, isDrained, jobs };
}

/** Take an update; gives the numbers of the GPUs that are another. */
export function apply(model, update) {
  const isNew = update.epoch !== model.epoch;
  if (isNew) Object.assign(model, emptyModel(), { epoch: update.epoch });
  model.version = update.version;
  model.nowAtS = update.now_at_s;
  model.jobs = update.jobs;
  if (update.cluster) {
    model.cluster = update.cluster;
    const gpus = update.cluster.nodes.reduce((sum, node) => sum + node.gpus, 0);
    model.gpus.length = gpus;
  }
  for (const [number, ...row] of update.gpus) model.gpus[number] = gpuOf(row);
  for (const [id, [name, user, kind]] of Object.entries(update.labels)) model.labels.set(Number(id), { name, user, kind });
  if (update.summary) model.summary = update.summary;
  if (isNew || update.has_gap) model.events = [];
  model.hasGap = model.hasGap || Boolean(update.has_gap);
  model.events = [...model.events, ...update.events].slice(-EVENTS_KEPT);
  model.lastEvent = update.last_event;
  if (model.labels.size > 4 * model.gpus.length + 1000) forgetOthers(model);
  return update.gpus.map(([number]) => number);
}

/** Names of jobs that are on no GPU any more. */
function forgetOthers(model) {
  const here = new Set(model.gpus.flatMap((gpu) => gpu?.jobs ?? []));
  for (const id of model.labels.keys()) if (!here.has(id)) model.labels.delete(id);
}

/** The whole model as one update, for a page that has nothing yet. */
export function asUpdate(model) {
  const row = (gpu) => [gpu.state, gpu.busy, gpu.memoryMib, gpu.watts, gpu.celsius, gpu.guard, gpu.isDrained, gpu.jobs];
  return {
    epoch: model.epoch, version: model.version, now_at_s: model.nowAtS, jobs: model.jobs, cluster: model.cluster,
    gpus: model.gpus.map((gpu, number) => [number, ...row(gpu)]), summary: model.summary, events: model.events,
    last_event: model.lastEvent, has_gap: model.hasGap,
    labels: Object.fromEntries([...model.labels].map(([id, one]) => [id, [one.name, one.user, one.kind]])),
  };
}
