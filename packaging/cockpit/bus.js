/* The D-Bus interface of nodeagent, over Cockpit's channels. */

const cockpit = window.cockpit;

export const NAME = "org.nodeagent.Agent1";
export const PATH = "/org/nodeagent/Agent1";
const BUS = "org.freedesktop.DBus";
const MANAGER = `${NAME}.Manager`;
const OWN_ERROR = "org.nodeagent.Error.";
// Milliseconds. The programs of the host check a config before a plan is answered.
const DEADLINE = 120000;

const STOPPED = "nodeagent does not run";
const FAULTS = {
    ServiceUnknown: [STOPPED, "start nodeagent.service"],
    NameHasNoOwner: [STOPPED, "start nodeagent.service"],
    NoReply: ["nodeagent ended before it answered", "read the status: the request may have had its effect"],
    LimitsExceeded: ["nodeagent has too many requests at once", "try again in a moment"],
};

/* A failed call: the reason, the message, the next step and all problems of the input. */
export class CallError extends Error {
    constructor(reason, message, hint = "", problems = []) {
        super(message);
        Object.assign(this, { reason, hint, problems });
    }
}

function fromBus(name, body) {
    if (name.startsWith(OWN_ERROR)) {
        const { hint, problems } = JSON.parse(body[1] ?? "{}");
        return new CallError(name.slice(OWN_ERROR.length), body[0], hint, problems);
    }
    const short = name.slice(name.lastIndexOf(".") + 1);
    const [message, hint] = FAULTS[short] ?? [body[0] || name, "the journal of nodeagent.service has the details"];
    return new CallError(short, message, hint);
}

const lost = problem => (problem === "not-found"
    ? new CallError("", STOPPED, "start nodeagent.service")
    : new CallError("", `The connection to the host was lost: ${cockpit.message(problem || "terminated")}`,
        "log in again, and read the status: the request may have had its effect"));

/* Calls methods, with administrative access where the session has it. cockpit.dbus drops the second argument of a
   D-Bus error, which has the hint and the problems, so that the calls have a channel of their own. */
export class Caller {
    #channel = null;
    #pending = new Map();
    #serial = 0;

    call(method, ...args) {
        const id = String(++this.#serial);
        return new Promise((resolve, reject) => {
            const timer = setTimeout(() => this.#settle(id, null, new CallError("", "nodeagent does not answer",
                "read the status: the request may have had its effect")), DEADLINE);
            this.#pending.set(id, { resolve, reject, timer });
            this.#open().send(JSON.stringify({ call: [PATH, MANAGER, method, args], id }));
        });
    }

    /* Close the channel. The next call opens one with the present rights. */
    close() {
        this.#channel?.close();
    }

    #open() {
        if (this.#channel === null) {
            const channel = cockpit.channel({ payload: "dbus-json3", bus: "system", name: NAME, superuser: "try" });
            channel.addEventListener("message", (_event, data) => this.#take(JSON.parse(data)));
            channel.addEventListener("close", (_event, { problem }) => {
                if (this.#channel === channel)
                    this.#channel = null;
                for (const id of [...this.#pending.keys()])
                    this.#settle(id, null, lost(problem));
            });
            this.#channel = channel;
        }
        return this.#channel;
    }

    #take(message) {
        if (message.error)
            this.#settle(message.id, null, fromBus(message.error[0], message.error[1] ?? []));
        else if (message.reply)
            this.#settle(message.id, message.reply[0]);
    }

    #settle(id, result, error = null) {
        const call = this.#pending.get(id);
        if (call === undefined)
            return;
        this.#pending.delete(id);
        clearTimeout(call.timer);
        if (error)
            call.reject(error);
        else
            call.resolve(result);
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
