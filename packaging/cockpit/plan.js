/* SPDX-License-Identifier: Apache-2.0 */
/* A plan (nodeagent/plan/v1) as elements. */

import { changeName, element, localTimes, notice } from "./dom.js";

const COSTS = {
    none: ["good", "No service is interrupted."],
    reload: ["good", "Services read their configuration again, and keep running."],
    restart: ["warn", "Services restart."],
    drain: ["warn", "The workloads move away first, then services restart."],
    reboot: ["bad", "The host reboots. This session ends; log in again to see the result."],
};

/* Return the tone and the sentence of what an update costs. */
export const costOf = plan => COSTS[plan.disruption] ?? ["warn", plan.disruption];

const describe = action => [action.type, action.unit].filter(Boolean).join(" ");

function detail({ what, before = "", after = "", added, removed }) {
    const counts = [["+", added], ["-", removed]].filter(([, lines]) => lines !== undefined);
    const values = before || after ? `${before || "none"} → ${after || "none"}` : "";
    return [what, values, ...counts.map(([sign, lines]) => `${sign}${lines}`)].filter(Boolean).join(" ");
}

function diffOf(text) {
    const lines = text.trimEnd().split("\n").map(line =>
        element("span", { class: line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "" }, `${line}\n`));
    // The lines may be wider than the page, so the box scrolls and takes the focus of the keyboard.
    const box = element("pre", { tabindex: "0", role: "region", "aria-label": "Changed lines" }, ...lines);
    return element("details", {}, element("summary", {}, "Changed lines"), box);
}

function changeOf(change) {
    const actions = change.actions.map(describe).join(", ") || "no action";
    return element("li", {},
        element("strong", {}, `${change.change} ${changeName(`${change.domain}:${change.key}`)}`),
        element("div", {}, `${actions} (policy: ${change.policy === "none" ? "unlisted" : change.policy})${change.why ? `: ${change.why}` : ""}`),
        ...(change.details ?? []).map(each => element("div", { class: "muted" }, detail(each))),
        ...(change.keys ?? []).map(each =>
            element("div", { class: "muted" }, `${each.key}: ${each.before} → ${each.after}`)),
        change.diff ? diffOf(change.diff) : "");
}

const listOf = (tag, title, items) =>
    (items.length ? [element("h3", {}, title), element(tag, {}, ...items.map(item => element("li", {}, item)))] : []);

export function planOf(plan) {
    const [tone, cost] = costOf(plan);
    const title = `${plan.from || "nothing"} → ${plan.to}: ${plan.changes.length ? plan.disruption : "no change"}`;
    return element("div", { class: "plan" },
        notice(tone, title, cost),
        ...listOf("ul", "Notes", plan.notes.map(localTimes)),
        ...(plan.changes.length
            ? [element("h3", {}, "Changes"), element("ul", { class: "changes" }, ...plan.changes.map(changeOf))]
            : []),
        ...listOf("ol", "Actions, in this order", plan.actions.map(each =>
            `${describe(each)}, for ${each.because.map(changeName).join(", ")}`)),
        ...listOf("ul", "Drift", plan.drift.map(each => `${changeName(each.entry)}: ${each.why} (${each.then})`)),
        ...listOf("ul", "Staged OS", plan.os ? [plan.os.summary] : []));
}
