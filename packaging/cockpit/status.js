/* SPDX-License-Identifier: Apache-2.0 */
/* The status of the host, as it changes. */

import { byId, changeName, element, localTime, localTimes, pairs } from "./dom.js";

const REST = ["Idle", "Degraded"];

export const underWay = status => status !== null && !REST.includes(status.Phase);

function tone(status) {
    if (status.Phase === "Degraded")
        return "bad";
    if (status.Problems.length || status.Reason)
        return "warn";
    return status.Phase === "Idle" ? "good" : "busy";
}

function sentence(status) {
    const { Phase, Reason, Message, Current, Desired, Target } = status;
    if (Message || Reason)
        return [Reason, Message && localTimes(Message)].filter(Boolean).join(": ");
    if (Phase !== "Idle")
        return `The update to ${Target || Desired} is under way.`;
    return Current ? `${Current} is in force, and nothing is under way.` : "No config was applied yet.";
}

/* As the row of nodeagent status. */
function trialWords({ config, back, until, kept_by: by }) {
    const then = by ? `kept by ${by}` : `then back to ${back || "the state before the first config"}, unless it is kept`;
    return `${config}, until ${localTime(until)}; ${then}`;
}

function facts(status, all) {
    const found = [["Current config", status.Current || "none"], ["Desired config", status.Desired || "none"]];
    if (status.Target)
        found.push(["Updating to", status.Target]);
    found.push([`${status.Phase} since`, localTime(status.Since)]);
    if (status.RebootRequired)
        found.push(["Reboot", "required"]);
    if (all.lease)
        found.push(["Lease", `${all.lease.holder}: ${all.lease.reason}`]);
    if (all.trial)
        found.push(["On trial", trialWords(all.trial)]);
    if (all.drain)
        found.push(["Pods to move", String(all.drain.remaining.length)]);
    if (status.DriftedEntries)
        found.push(["Drift", all.drift.map(({ entry, why }) => `${changeName(entry)}: ${why}`).join("; ")]);
    for (const { version, checksum, booted, staged } of all.deployments)
        if (booted || staged)
            found.push([booted ? "Booted OS" : "Staged OS", version || checksum.slice(0, 12)]);
    if (all.os_changes)
        found.push(["Next boot", all.os_changes.summary]);
    return found;
}

function showStep({ Step, Percent }, { step }) {
    byId("step").hidden = !Step;
    byId("step-name").textContent = step?.count ? `${step.index} of ${step.count}: ${Step}` : Step;
    byId("step-percent").textContent = `${Percent} %`;
    byId("step-bar").value = Percent;
}

let announced = "";

/* Screen readers get changes of phase and reason, not each percent. */
function announce(words) {
    if (words !== announced)
        byId("announce").textContent = announced = words;
}

export function showStatus(status) {
    byId("stopped").hidden = status !== null;
    byId("now").classList.toggle("stale", status === null);
    if (status === null) {
        byId("phase").textContent = "Stopped";
        byId("phase").className = "badge bad";
        announce("nodeagent does not run");
        return;
    }
    const all = JSON.parse(status.Status);
    const words = sentence(status);
    byId("phase").textContent = status.Phase;
    byId("phase").className = `badge ${tone(status)}`;
    byId("sentence").textContent = words;
    byId("what-now").hidden = !status.Hint;
    byId("what-now-text").textContent = status.Hint;
    byId("documentation").hidden = !all.documentation;
    byId("documentation").href = all.documentation || "#";
    showStep(status, all);
    byId("problems").hidden = !status.Problems.length;
    byId("problems").replaceChildren(...status.Problems.map(([, reason, message]) =>
        element("li", {}, `${reason}: ${localTimes(message)}`)));
    byId("facts").replaceChildren(...pairs(facts(status, all)));
    byId("version").textContent = `nodeagent ${status.Version}`;
    announce(`${status.Phase}: ${words}`);
}
