// node bench/plot.mjs RESULTS.json OUT.svg: the medians of a benchmark as bars on a logarithmic scale.
import { readFileSync, writeFileSync } from "node:fs";
import { median } from "./lib.mjs";

const [input, output] = process.argv.slice(2);
const { rows } = JSON.parse(readFileSync(input, "utf8"));
const groups = rows.filter(({ times }) => times !== undefined);

const LEFT = 190;
const WIDTH = 640;
const BAR = 16;
const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const text = (ms) =>
  ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : ms >= 10 ? `${ms.toFixed(0)} ms` : `${ms.toFixed(2)} ms`;
const all = groups.flatMap(({ times }) => Object.values(times).map(median));
const low = 10 ** Math.floor(Math.log10(Math.min(...all)));
const high = 10 ** Math.ceil(Math.log10(Math.max(...all)));
const x = (ms) => (Math.log10(ms / low) / Math.log10(high / low)) * WIDTH;

const parts = [];
let y = 14;
for (const { work, times } of groups) {
  parts.push(`<text x="0" y="${y}" class="work">${escaped(work)}</text>`);
  y += 10;
  for (const [name, values] of Object.entries(times)) {
    const ms = median(values);
    const kind = name.startsWith("torchload") ? "ours" : "theirs";
    parts.push(
      `<text x="${LEFT - 8}" y="${y + 12}" text-anchor="end">${escaped(name)}</text>`,
      `<rect x="${LEFT}" y="${y}" width="${Math.max(2, x(ms)).toFixed(1)}" height="${BAR - 3}" class="${kind}"/>`,
      `<text x="${(LEFT + Math.max(2, x(ms)) + 6).toFixed(1)}" y="${y + 12}">${text(ms)}</text>`,
    );
    y += BAR;
  }
  y += 22;
}
const style =
  "text{font:12px system-ui,sans-serif;fill:#333}.work{font-weight:600;font-size:13px}.ours{fill:#d9480f}.theirs{fill:#8a94a3}" +
  "@media(prefers-color-scheme:dark){text{fill:#ddd}.ours{fill:#ff8a4c}.theirs{fill:#5d6775}}";
writeFileSync(
  output,
  `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${LEFT + WIDTH + 90} ${y}" role="img"><title>Time to load, logarithmic scale; shorter is better</title><style>${style}</style>${parts.join("")}</svg>\n`,
);
console.log(`written: ${output}`);
