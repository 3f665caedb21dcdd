// Bundles the program and its style into the Python package. A test compares the digest of the
// sources, which the program starts with.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const sources = readdirSync("src").sort().map((name) => `src/${name}`);
const digest = createHash("sha256");
for (const path of [...sources, "package-lock.json"]) digest.update(readFileSync(path));

const { metafile } = await build({
  metafile: true,
  entryPoints: ["src/main.ts", "src/explore.css"],
  entryNames: "explore",
  outdir: "../src/uqsonet/show/web",
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "eof",
  banner: { js: `// ${digest.digest("hex")}` },
});

// Whoever passes the program on passes the licenses of its parts on, too.
const parts = Object.keys(metafile.inputs).map((path) => path.match(/^node_modules\/[^/]+/)?.[0]);
const texts = [...new Set(parts.filter(Boolean))].sort().map((folder) => {
  const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
  return `${folder.slice("node_modules/".length)}\n\n${readFileSync(`${folder}/${file}`, "utf8").trim()}\n`;
});
writeFileSync("../src/uqsonet/show/web/licenses.txt", texts.join("\n\n"));
