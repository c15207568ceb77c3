/* SPDX-License-Identifier: Apache-2.0 */
/* The last updates, each with its time line: phases, steps and waits as nodeagent recorded them. */

import { badge, byId, element, failure, localTime, localTimes } from "./dom.js";

const SHOWN = 20;
// After a revert the host is well.
const TONES = { done: "good", degraded: "bad" };

function took(seconds) {
    if (seconds === null)
        return "…";
    if (seconds < 60)
        return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
    const minutes = Math.floor(seconds / 60);
    return minutes < 60 ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/* Return a function from a time of a boot to seconds since the begin of the update, and the end. Lengths within a boot
   are by its own clock; between two boots no clock of a boot runs, so that gap is by the wall clock. */
function scaleOf(boots) {
    const starts = [0];
    for (const [index, boot] of boots.entries()) {
        if (index === 0)
            continue;
        const before = boots[index - 1];
        const gap = Math.max(0, boot.offset + boot.seen - before.offset - before.last);
        starts.push(starts[index - 1] + before.last - before.seen + gap);
    }
    const end = starts.at(-1) + boots.at(-1).last - boots.at(-1).seen;
    return [({ boot, mono }) => starts[boot] + mono - boots[boot].seen, end];
}

function rowOf(kind, span, [at, end]) {
    const begin = at(span);
    const length = span.seconds ?? Math.max(0, end - begin);
    const bar = element("span", { class: `bar ${kind}` });
    const percent = seconds => (end > 0 ? Math.min(100, 100 * seconds / end) : 100);
    bar.style.insetInlineStart = `${Math.min(99, percent(begin))}%`;
    bar.style.width = `max(3px, ${percent(length)}%)`;
    const why = [span.result === "done" ? "" : span.result, span.reason, localTimes(span.message ?? "")];
    return element("li", { class: kind },
        element("span", { class: "what" }, span.name || "waited"),
        element("span", { class: "length" }, took(span.seconds)),
        element("span", { class: "track", "aria-hidden": "true" }, bar),
        element("span", { class: "muted why" }, why.filter(Boolean).join(": ")));
}

function timeLine(trail) {
    if (!trail.boots?.length)
        return element("p", { class: "muted" }, "The course of this update is not kept.");
    const scale = scaleOf(trail.boots);
    const spans = [["phase", trail.phases], ["step", trail.steps], ["wait", trail.waits]]
        .flatMap(([kind, found]) => found.map(span => [kind, span]))
        .sort(([, a], [, b]) => scale[0](a) - scale[0](b));
    return element("ol", { class: "timeline" }, ...spans.map(([kind, span]) => rowOf(kind, span, scale)));
}

export class HistorySection {
    #caller;
    // Several events read it, and the answer to the last request counts.
    #asked = 0;

    constructor(caller) {
        this.#caller = caller;
    }

    /* Read the history again. Open entries stay open. */
    async read() {
        const asked = ++this.#asked;
        try {
            const [answer] = await this.#caller.call("History", SHOWN);
            if (asked !== this.#asked)
                return;
            const { updates } = JSON.parse(answer);
            const open = new Set([...document.querySelectorAll("#history details[open]")].map(each => each.dataset.id));
            byId("history").replaceChildren(...updates.map(update => this.#entry(update, open)));
            byId("history-result").replaceChildren(updates.length ? "" : "No update yet.");
        } catch (error) {
            if (asked === this.#asked)
                byId("history-result").replaceChildren(failure(error));
        }
    }

    #entry(update, open) {
        const others = (update.boots ?? update.reboots) - update.reboots;
        const reboots = (update.reboot_avoided ? "reboot avoided" : `${update.reboots} reboots`)
            + (others > 0 ? `, ${others} boots not requested` : "");
        const details = element("details", { "data-id": update.update_id },
            element("summary", {},
                element("span", { class: "what" }, `${update.from_name || "nothing"} → ${update.to_name}`),
                badge(update.outcome, TONES[update.outcome] ?? "warn"),
                element("span", { class: "muted" }, `${localTime(update.started)}, ${took(update.seconds)}, ${reboots}`)),
            element("p", { class: "why" }, [update.reason, localTimes(update.message)].filter(Boolean).join(": ")),
            element("div", { class: "course" }));
        details.addEventListener("toggle", () => details.open && this.#course(details), { once: true });
        details.open = open.has(update.update_id);
        return element("li", {}, details);
    }

    async #course(details) {
        const course = details.querySelector(".course");
        try {
            const [answer] = await this.#caller.call("Update", details.dataset.id);
            course.replaceChildren(timeLine(JSON.parse(answer).trail));
        } catch (error) {
            course.replaceChildren(failure(error));
        }
    }
}
