/* SPDX-License-Identifier: Apache-2.0 */
/* Elements and texts. All data enters the page as text, never as markup. */

export const byId = id => document.getElementById(id);

/* Return a new element with children, which are elements or texts. */
export function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes))
        made.setAttribute(name, value);
    made.append(...children.filter(child => child !== "" && child !== null && child !== undefined));
    return made;
}

export const badge = (text, tone) => element("span", { class: `badge ${tone}` }, text);

/* Return pairs of names and values for a description list. */
export const pairs = facts => facts.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value)));

/* Return a message box. Urgent ones interrupt a screen reader. */
export const notice = (tone, title, ...parts) =>
    element("div", { class: `notice ${tone}`, role: tone === "bad" ? "alert" : "status" },
        element("strong", {}, title),
        ...parts.filter(part => part).map(part => (typeof part === "string" ? element("p", {}, part) : part)));

export const failure = error =>
    notice("bad", error.reason || "The request failed", error.message,
        error.problems?.length
            ? element("ul", {}, ...error.problems.map(({ path, message }) =>
                element("li", {}, path ? `${changeName(path)}: ${message}` : message)))
            : "",
        error.hint ? `What now: ${error.hint}` : "");

const LOCAL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });

export const localTime = stamp => (stamp ? LOCAL.format(new Date(stamp)) : "");

/* Return the id of a change, "fips" for "fips:fips". */
export const changeName = id => id.replace(/^(\w+):\1$/, "$1");

/* Return the text with its times, which nodeagent writes as RFC 3339 in UTC, in local time. */
export const localTimes = text =>
    text.replace(/\b\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?Z/g, stamp => localTime(stamp));
