# SPDX-License-Identifier: Apache-2.0
"""The style sheet of the page: light, dark, phone and print."""

from __future__ import annotations

# Down time is hatched, because a colour is lost on paper and on some readers.
# The colours of text on a bar (``--on-...``) are chosen for each bar, because one colour is not readable on all of
# them.
STYLE = """
:root{color-scheme:light dark;--page:#fff;--ink:#1b1d22;--soft:#565b66;--rule:#d9dce2;--card:#f6f7f9;
--quiet:#9cc4ee;--on-quiet:#0c2a4a;--wait:#c9ccd4;--on-wait:#22252c;--disrupt:#f0a63c;--on-disrupt:#3a2300;
--revert:#e88b8b;--on-revert:#4a0808;--failed:#d65a5a;--on-failed:#fff;--skipped:#dfe2e8;--on-skipped:#3b3f49;
--boot:#e3e7ee;--band:#fdf0d9;--warn:#8a4b00;--limit:#b3261e;--course:#1f5fa8;--good:#1a6b33;--bad:#a4161a}
@media (prefers-color-scheme:dark){:root{--page:#16181d;--ink:#e8eaee;--soft:#a9afbb;--rule:#3a3f4a;--card:#1f2229;
--quiet:#2f6cab;--on-quiet:#fff;--wait:#565c69;--on-wait:#fff;--disrupt:#c77c12;--on-disrupt:#1c1000;
--revert:#a04545;--on-revert:#fff;--failed:#c04343;--on-failed:#fff;--skipped:#3f4551;--on-skipped:#e8eaee;
--boot:#2b303a;--band:#33290f;--warn:#f3bd6b;--limit:#ff8a80;--course:#7db4f0;--good:#79d28f;--bad:#ff8f8f}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.45 system-ui,"DejaVu Sans",sans-serif}
main{max-width:1040px;margin:0 auto;padding:24px 20px 40px}
h1{font-size:26px;margin:0;display:inline;overflow-wrap:anywhere}
h2{font-size:18px;margin:34px 0 8px}
p{margin:8px 0;max-width:72ch;overflow-wrap:anywhere}
.sub,.soft{color:var(--soft)}
.lead{font-size:18px}
.pill{display:inline-block;margin-left:10px;padding:1px 11px;border:1.5px solid;border-radius:99px;font-weight:600;
vertical-align:4px;overflow-wrap:anywhere}
.good{color:var(--good)}.bad{color:var(--bad)}.middling{color:var(--warn)}
dl.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(138px,1fr));gap:10px;margin:18px 0 0}
dl.tiles div{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:8px 12px}
dl.tiles dt{font-size:13px;color:var(--soft)}
dl.tiles dd{margin:0;font-size:19px;font-weight:650;overflow-wrap:anywhere}
svg{display:block;max-width:100%;height:auto;font:12px system-ui,"DejaVu Sans",sans-serif}
svg.phone{display:none}
svg text{fill:var(--ink)}svg text.lane{font-weight:650}svg text.soft{fill:var(--soft)}
svg text.warn{fill:var(--warn);font-weight:650}
.quiet{fill:var(--quiet)}.wait{fill:var(--wait)}.disrupt{fill:var(--disrupt)}.revert{fill:var(--revert)}
.failed{fill:var(--failed)}.skipped{fill:var(--skipped)}.boot{fill:var(--boot)}
svg text.in.quiet{fill:var(--on-quiet)}svg text.in.wait{fill:var(--on-wait)}svg text.in.disrupt{fill:var(--on-disrupt)}
svg text.in.revert{fill:var(--on-revert)}svg text.in.failed{fill:var(--on-failed)}
svg text.in.skipped{fill:var(--on-skipped)}
.band{fill:var(--band)}.down{fill:url(#hatch);stroke:var(--ink);stroke-width:1}.clock{fill:var(--limit)}
.bar{stroke:var(--page);stroke-width:.6}.grid{stroke:var(--rule);stroke-width:.7}.leader{stroke:var(--soft);stroke-width:.8}
.base{stroke:var(--soft);stroke-width:1}.limit{stroke:var(--limit);stroke-width:1;stroke-dasharray:4 3}
.course{fill:none;stroke:var(--course);stroke-width:2}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;padding:0;margin:8px 0 0;font-size:13px;color:var(--soft)}
.key span{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:6px;vertical-align:-1px}
.key .k-quiet{background:var(--quiet)}.key .k-wait{background:var(--wait)}.key .k-disrupt{background:var(--disrupt)}
.key .k-revert{background:var(--revert)}.key .k-band{background:var(--band);outline:1px solid var(--disrupt)}
.key .k-down{background:repeating-linear-gradient(45deg,var(--ink) 0 1px,var(--page) 1px 4px);
outline:1px solid var(--ink)}
.key .k-clock{background:var(--limit);clip-path:polygon(0 15%,100% 15%,50% 100%)}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;vertical-align:top;padding:5px 14px 5px 0;border-bottom:1px solid var(--rule)}
th{color:var(--soft);font-weight:500;font-size:13px}
td.n,th.n{text-align:right;white-space:nowrap}
td.long{overflow-wrap:anywhere}
footer{margin-top:34px;border-top:1px solid var(--rule);padding-top:10px;font-size:13px;color:var(--soft)}
@media (max-width:640px){
main{padding:16px 14px 30px}
svg.desk{display:none}svg.phone{display:block}
h1{font-size:22px}h2{font-size:17px}.lead{font-size:16px}
thead{position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden}
table,tbody{display:block}
tr{display:grid;grid-template-columns:minmax(0,1fr) fit-content(45%);
gap:0 12px;padding:6px 0;border-bottom:1px solid var(--rule)}
th[scope=row],td{display:block;border:0;padding:0}
td.long{grid-column:1/-1;color:var(--soft)}td.long:empty{display:none}
td.at{display:none}td.n{white-space:normal;overflow-wrap:anywhere}}
th[scope=row]{color:inherit;font-size:inherit;font-weight:inherit;overflow-wrap:anywhere}
@media print{:root{color-scheme:light;--page:#fff;--ink:#000;--soft:#444;--rule:#bbb;--card:#fff;--quiet:#9cc4ee;
--on-quiet:#000;--wait:#c9ccd4;--on-wait:#000;--disrupt:#f0a63c;--on-disrupt:#000;--revert:#e88b8b;--on-revert:#000;
--failed:#d65a5a;--on-failed:#000;--skipped:#dfe2e8;--on-skipped:#000;--boot:#e3e7ee;--band:#fdf0d9;--warn:#7a4200;
--limit:#b3261e;--course:#1f5fa8;--good:#1a6b33;--bad:#a4161a}
@page{margin:12mm}
body,table,.lead{font-size:11px}body{print-color-adjust:exact;-webkit-print-color-adjust:exact}
main{max-width:none;padding:0}
svg.desk{display:block}svg.phone{display:none}
svg,tr,dl.tiles{break-inside:avoid}h2{break-after:avoid}}
"""
