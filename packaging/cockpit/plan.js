/* SPDX-License-Identifier: Apache-2.0 */
/* A plan (nodeagent/plan/v1) as elements, in the words of `nodeagent plan`. */

import { changeName, element, localTimes, notice } from "./dom.js";

const COSTS = {
    none: ["good", "nothing is restarted"],
    reload: ["good", "services re-read their configuration, none stops"],
    restart: ["warn", "services restart, workloads stay"],
    drain: ["warn", "workloads move away first, no reboot"],
    reboot: ["bad", "workloads move away first, then the host reboots"],
};
// Without a cluster, a drain moves nothing.
const ALONE = { ...COSTS, restart: ["warn", "services restart"], reboot: ["bad", "the host reboots"] };
const POLICIES = { default: "built in", recommended: "recommended", user: "user", none: "unlisted" };
const THEN = {
    kept: "it stays as it is",
    overwritten: "this update overwrites it",
    wanted: "it is as the new config wants it",
};
// Their values are added or removed one by one.
const LISTED = ["argument", "extension", "key"];
const WORDS = ["none", "reload", "restart", "drain", "reboot"];
const DISRUPTION = { None: "none", DaemonReload: "reload", Reload: "reload", Reboot: "reboot" };

const describe = action => [action.type, action.unit].filter(Boolean).join(" ");
const withoutDrain = (actions, plan) => actions.filter(({ type }) => plan.in_cluster !== false || type !== "Drain");

/* Return the tone and the sentence of what an update costs. */
export function costOf(plan) {
    const alone = plan.in_cluster === false;
    const words = withoutDrain(plan.actions, plan).map(({ type }) => DISRUPTION[type] ?? "restart");
    const word = alone ? WORDS.filter(each => words.includes(each)).at(-1) ?? "none" : plan.disruption;
    const [tone, sentence] = (alone ? ALONE : COSTS)[word] ?? ["warn", plan.disruption];
    return [tone, word === "reboot" ? `${sentence}. This session ends; log in again to see the result.` : `${sentence}.`];
}

/* Return the actions of a plan as texts, in their order. */
export const actionsOf = plan =>
    withoutDrain(plan.actions, plan).filter(({ type }) => type !== "None").map(describe);

function detail({ what, before = "", after = "", added, removed, count }, total) {
    const rest = count !== undefined && count < total ? ` (${count} of them)` : "";
    if (added !== undefined || removed !== undefined)
        return `${what} +${added ?? 0} -${removed ?? 0}${rest}`;
    if (LISTED.includes(what))
        return (after ? `+${after}` : `-${before}`) + rest;
    const value = before ? `${before} → ${after || "none"}` : after;
    return (value ? `${what} ${value}` : `${what} differs`) + rest;
}

function diffOf(text) {
    const lines = text.trimEnd().split("\n").map(line =>
        element("span", { class: line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "" }, `${line}\n`));
    // The lines may be wider than the page, so the box scrolls and takes the focus of the keyboard.
    const box = element("pre", { tabindex: "0", role: "region", "aria-label": "Changed lines" }, ...lines);
    return element("details", {}, element("summary", {}, "Changed lines"), box);
}

const head = (change, what) => element("strong", {}, `${change.change} ${what}`);

function decision(change, plan) {
    const actions = withoutDrain(change.actions, plan).map(describe).join(", ") || "None";
    return element("div", {}, `${actions} (policy: ${POLICIES[change.policy] ?? change.policy})${change.why ? `: ${change.why}` : ""}`);
}

const muted = texts => texts.map(text => element("div", { class: "muted" }, text));

const changeOf = (change, plan) => element("li", {},
    head(change, changeName(`${change.domain}:${change.key}`)),
    decision(change, plan),
    ...muted((change.details ?? []).map(each => detail(each, 1))),
    ...muted((change.keys ?? []).map(each => `${each.key}: ${each.before || "-"} → ${each.after || "-"}`)),
    change.diff ? diffOf(change.diff) : "");

/* A row of many equal changes. They are made when the row is opened. */
function groupOf(group, changes, plan) {
    const all = element("details", {}, element("summary", {}, `All ${changes.length}`));
    all.addEventListener("toggle", () =>
        all.append(element("ul", { class: "changes" }, ...changes.map(each => changeOf(each, plan)))), { once: true });
    return element("li", {},
        head(changes[0], group.what),
        decision(changes[0], plan),
        ...muted(group.details.map(each => detail(each, changes.length))),
        all);
}

function rowsOf(plan) {
    const groups = new Map((plan.groups ?? []).flatMap(group => group.changes.map(id => [id, group])));
    const changes = new Map(plan.changes.map(change => [`${change.domain}:${change.key}`, change]));
    const shown = new Set();
    return [...changes].map(([id, change]) => {
        const group = groups.get(id);
        if (group === undefined)
            return changeOf(change, plan);
        if (shown.has(group))
            return "";
        shown.add(group);
        return groupOf(group, group.changes.map(each => changes.get(each)), plan);
    }).filter(row => row !== "");
}

/* Return the first names, and the number of the others. */
const enumerated = names => names.slice(0, 3).join(", ") + (names.length > 3 ? ` and ${names.length - 3} more` : "");

const listOf = (tag, title, items) =>
    (items.length ? [element("h3", {}, title), element(tag, {}, ...items.map(item => element("li", {}, item)))] : []);

export function planOf(plan) {
    const [tone, cost] = costOf(plan);
    const title = `${plan.from || "no config"} → ${plan.to}: ${plan.changes.length ? plan.disruption : "no change"}`;
    const counts = plan.counts;
    return element("div", { class: "plan" },
        notice(tone, title, cost, counts
            ? `Entries: ${counts.added} added, ${counts.changed} changed, ${counts.removed} removed of ${counts.total}.` : ""),
        ...listOf("ul", "Notes", [...plan.notes.map(localTimes),
            ...(plan.fallback ? ["if an action fails: a reboot, and a revert if that does not help"] : [])]),
        ...(plan.changes.length
            ? [element("h3", {}, "Changes"), element("ul", { class: "changes" }, ...rowsOf(plan))]
            : []),
        ...listOf("ol", "Actions, in this order", withoutDrain(plan.actions, plan).map(each =>
            `${describe(each)}, for ${enumerated(each.because.map(changeName))}`)),
        ...listOf("ul", "Drift", plan.drift.map(each =>
            `${changeName(each.entry)} ${each.why}; ${THEN[each.then] ?? each.then}`)),
        ...listOf("ul", "Staged OS", plan.os ? [plan.os.summary] : []));
}
