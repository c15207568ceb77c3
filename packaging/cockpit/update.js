/* SPDX-License-Identifier: Apache-2.0 */
/* Preview a config, apply it, cancel the update under way, and roll the last one back. */

import { CallError } from "./bus.js";
import { confirm } from "./confirm.js";
import { byId, element, failure, notice } from "./dom.js";
import { actionsOf, costOf, planOf } from "./plan.js";
import { isAdmin, onRights } from "./rights.js";
import { underWay } from "./status.js";

// Bytes; nodeagent refuses more from users other than root.
const MAX_CONFIG = 2 << 20;
const EFFECTS = {
    end: "It ends at once; nothing was changed.",
    reverting: "It is taken back already.",
    revert: "The previous files are restored, without a reboot.",
};

export class UpdateSection {
    #caller;
    #status = null;
    #busy = false;
    #plan = null;
    #revision = 0;

    constructor(caller) {
        this.#caller = caller;
        byId("config").addEventListener("input", () => this.#edited());
        byId("file").addEventListener("change", event => this.#load(event.target));
        byId("preview").addEventListener("click", () => this.#run("result", () => this.#preview()));
        byId("apply").addEventListener("click", () => this.#run("result", () => this.#apply()));
        byId("cancel").addEventListener("click", () => this.#run("cancel-result", () => this.#cancel()));
        byId("rollback").addEventListener("click", () => this.#run("rollback-result", () => this.#rollback()));
        onRights(() => this.#refresh());
    }

    show(status) {
        byId(underWay(status) ? "rollback-result" : "cancel-result").replaceChildren();
        this.#status = status;
        this.#refresh();
    }

    /* A plan holds for the text, and for the config that was current when it was made. */
    forget() {
        if (this.#plan !== null)
            byId("result").replaceChildren(notice("warn", "The host has changed", "Preview again before Apply."));
        this.#plan = null;
        this.#revision += 1;
        this.#refresh();
    }

    #edited() {
        this.#plan = null;
        byId("result").replaceChildren();
        this.forget();
    }

    async #load(input) {
        const [file] = input.files;
        if (file === undefined)
            return;
        if (file.size > MAX_CONFIG) {
            byId("result").replaceChildren(failure({
                reason: "The file is too large",
                message: `${file.name} has ${file.size} bytes, and a config has at most ${MAX_CONFIG}`,
                hint: "choose a MachineConfig, or run nodeagent apply FILE on the host",
            }));
        } else {
            byId("config").value = await file.text();
            this.#edited();
        }
        // The same file can be chosen again after it was edited.
        input.value = "";
    }

    #refresh() {
        const may = isAdmin() && !this.#busy && this.#status !== null;
        byId("preview").disabled = !may || !byId("config").value.trim();
        byId("apply").disabled = !may || this.#plan === null;
        byId("cancel").hidden = !underWay(this.#status);
        byId("cancel").disabled = !may;
        // Before the first config, there is none to go back to.
        byId("rollback").hidden = underWay(this.#status) || !this.#status?.Current;
        byId("rollback").disabled = !may;
    }

    async #run(result, request) {
        this.#busy = true;
        this.#refresh();
        byId(result).setAttribute("aria-busy", "true");
        try {
            const shown = await request();
            if (shown)
                byId(result).replaceChildren(shown);
        } catch (error) {
            byId(result).replaceChildren(failure(error));
        } finally {
            byId(result).removeAttribute("aria-busy");
            this.#busy = false;
            this.#refresh();
        }
    }

    async #preview() {
        const text = byId("config").value;
        this.#plan = null;
        const asked = ++this.#revision;
        const plan = await this.#planFor(text, { diff: { t: "b", v: true } });
        // The text was edited while the plan was made.
        if (asked !== this.#revision)
            return null;
        this.#plan = { text, plan };
        return planOf(plan);
    }

    async #planFor(text, options) {
        const [answer] = await this.#caller.call("Plan", text, { ...options, problems: { t: "b", v: true } });
        const plan = JSON.parse(answer);
        if (plan.error)
            throw new CallError(plan.error);
        return plan;
    }

    async #apply() {
        const { text, plan } = this.#plan;
        const parts = [element("p", {}, costOf(plan)[1]), element("ol", {}, ...actionsOf(plan).map(each =>
            element("li", {}, each)))];
        if (!await confirm(`Apply ${plan.to}?`, parts, "Apply"))
            return null;
        // More than was confirmed is refused, if the host has changed since the preview.
        await this.#caller.call("Apply", text, { planned_disruption: { t: "s", v: plan.disruption } });
        this.#plan = null;
        return notice("good", "Accepted", `${plan.to} is the desired config. The status above follows the update.`);
    }

    async #cancel() {
        const name = this.#status.Target || this.#status.Desired;
        const parts = [element("p", {}, "What it has written is taken back. It is applied again on request only.")];
        if (!await confirm(`Cancel the update to ${name}?`, parts, "Cancel the update"))
            return null;
        const [answer] = await this.#caller.call("Cancel", {});
        const { config, effect, applied } = JSON.parse(answer);
        const what = effect === "end" && applied ? "It ends at once; some of its changes were applied before." : EFFECTS[effect];
        return notice("good", `The update to ${config} is cancelled`, what ?? effect);
    }

    async #rollback() {
        const { Current } = this.#status;
        const plan = await this.#planFor("", { rollback: { t: "b", v: true } });
        if (!await confirm(`Roll back ${Current}?`, [planOf(plan)], "Roll back"))
            return null;
        const [config] = await this.#caller.call("Rollback", { planned_disruption: { t: "s", v: plan.disruption } });
        return notice("good", "Accepted", `${config} is the desired config. The status above follows the update.`);
    }
}
