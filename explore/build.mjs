// Bundles the program and its style into the Python package.
import { build } from "esbuild";

await build({
  entryPoints: ["src/main.ts", "src/explore.css"],
  entryNames: "explore",
  outdir: "../src/uqsonet/web",
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "eof",
});
