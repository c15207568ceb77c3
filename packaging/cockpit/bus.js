/* SPDX-License-Identifier: Apache-2.0 */
/* The D-Bus interface of nodeagent, over Cockpit's channels. */

const cockpit = window.cockpit;

export const NAME = "org.nodeagent.Agent1";
export const PATH = "/org/nodeagent/Agent1";
const BUS = "org.freedesktop.DBus";
const MANAGER = `${NAME}.Manager`;
// Milliseconds. The programs of the host check a config before a plan is answered.
const DEADLINE = 120000;

const OUTCOME = "read the status: the request may have had its effect";
// Cockpit's bridge drops the hint of a D-Bus error, so those that this page can meet are here. Plan answers with its own.
const HINTS = {
    NotAuthorized: "turn on administrative access at the top of Cockpit",
    UpdateUnderWay: "wait for its end, or cancel it",
    DisruptionExceeded: "preview again: the host has changed since the preview",
    ClusterDecides: "change the config in the cluster",
    NoPrevious: "apply the config that you want",
    CancelTooLate: "wait for its end, then run nodeagent rollback on the host",
    ServiceUnknown: "start nodeagent.service",
    NameHasNoOwner: "start nodeagent.service",
    "not-found": "start nodeagent.service",
    LimitsExceeded: "try again in a moment",
    NoReply: OUTCOME,
    timeout: OUTCOME,
};

/* A failed call: the reason, the message, the next step and all problems of the input. */
export class CallError extends Error {
    constructor({ reason, message, hint, problems = [] }) {
        super(message);
        Object.assign(this, { reason, hint, problems });
    }
}

function callError({ name, message, problem }) {
    const reason = name ? name.slice(name.lastIndexOf(".") + 1) : problem;
    const hint = HINTS[reason] ?? (name ? "the journal of nodeagent.service has the details" : OUTCOME);
    return new CallError({ reason, message: problem === "not-found" ? "nodeagent does not run" : message, hint });
}

/* Calls methods, with administrative access where the session has it. */
export class Caller {
    #client = null;
    // The calls of each connection that have no answer yet.
    #pending = new Map();

    async call(method, ...args) {
        if (this.#client === null) {
            const opened = cockpit.dbus(NAME, { bus: "system", superuser: "try" });
            opened.addEventListener("close", () => {
                if (this.#client === opened)
                    this.#client = null;
            });
            this.#client = opened;
        }
        const client = this.#client;
        this.#pending.set(client, (this.#pending.get(client) ?? 0) + 1);
        try {
            return await client.call(PATH, MANAGER, method, args, { timeout: DEADLINE });
        } catch (error) {
            throw callError(error);
        } finally {
            this.#pending.set(client, this.#pending.get(client) - 1);
            if (client !== this.#client)
                this.#end(client);
        }
    }

    /* Let the next call open a connection, with the present rights. Calls without an answer keep theirs: the rights
       of a slow host may change seconds after the page has asked for the history. */
    renew() {
        const client = this.#client;
        this.#client = null;
        if (client !== null)
            this.#end(client);
    }

    #end(client) {
        if (this.#pending.get(client))
            return;
        this.#pending.delete(client);
        client.close();
    }
}

/* Call `changed` with the typed properties and the JSON of the status, or with null while nodeagent does not run.
   `finished` is called at the end of each update, `disconnected` when the session ends. Every user may read. */
export function watch({ changed, finished, disconnected }) {
    const bus = cockpit.dbus(BUS, { bus: "system" });
    let client = null;

    // A channel ends at once if its name has no owner, and a proxy stays valid when the owner leaves. So the bus
    // reports the owners, and each of them gets a client.
    function follow(owner) {
        client?.close();
        client = null;
        if (!owner) {
            changed(null);
            return;
        }
        const own = client = cockpit.dbus(NAME, { bus: "system" });
        const status = own.proxy(`${NAME}.Status`, PATH);
        const report = () => {
            if (own === client && status.valid && status.Phase)
                changed(status);
        };
        own.subscribe({ interface: MANAGER, path: PATH, member: "UpdateFinished" },
            (_path, _interface, _member, [, entry]) => finished(JSON.parse(entry)));
        status.addEventListener("changed", report);
        status.wait(report);
    }

    let known = false;
    bus.subscribe({ interface: BUS, member: "NameOwnerChanged", arg0: NAME }, (_path, _interface, _member, args) => {
        known = true;
        follow(args[2]);
    });
    bus.call("/org/freedesktop/DBus", BUS, "GetNameOwner", [NAME])
        .then(([owner]) => owner, () => "")
        .then(owner => {
            if (!known)
                follow(owner);
        });
    bus.addEventListener("close", (_event, { problem }) => disconnected(cockpit.message(problem || "terminated")));
}
