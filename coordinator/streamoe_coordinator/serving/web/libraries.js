// @ts-check
/**
 * The libraries, each named once with its version. Owns the list of highlighted languages; knows nothing of the page.
 * `make vendor` keeps the files; vendor/VENDOR.toml has their hashes and licences.
 */

import purify from "./vendor/dompurify-3.5.0/purify.es.js";
import highlighter from "./vendor/highlight.js-11.12.0/core.min.js";
import { Marked as MarkedClass } from "./vendor/marked-18.2.1/marked.esm.js";
import bash from "./vendor/highlight.js-11.12.0/languages/bash.min.js";
import cpp from "./vendor/highlight.js-11.12.0/languages/cpp.min.js";
import css from "./vendor/highlight.js-11.12.0/languages/css.min.js";
import go from "./vendor/highlight.js-11.12.0/languages/go.min.js";
import javascript from "./vendor/highlight.js-11.12.0/languages/javascript.min.js";
import json from "./vendor/highlight.js-11.12.0/languages/json.min.js";
import python from "./vendor/highlight.js-11.12.0/languages/python.min.js";
import rust from "./vendor/highlight.js-11.12.0/languages/rust.min.js";
import sql from "./vendor/highlight.js-11.12.0/languages/sql.min.js";
import typescript from "./vendor/highlight.js-11.12.0/languages/typescript.min.js";
import xml from "./vendor/highlight.js-11.12.0/languages/xml.min.js";
import yaml from "./vendor/highlight.js-11.12.0/languages/yaml.min.js";

// The files are minified and say nothing of their types.
export const DOMPurify = /** @type {any} */ (purify);
export const Marked = /** @type {any} */ (MarkedClass);
export const hljs = /** @type {any} */ (highlighter);

const LANGUAGES = { bash, cpp, css, go, javascript, json, python, rust, sql, typescript, xml, yaml };
for (const [name, grammar] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, grammar);
hljs.registerAliases(["shell", "console", "zsh"], { languageName: "bash" });
hljs.registerAliases(["c", "h"], { languageName: "cpp" });
hljs.registerAliases(["jsonl", "jsonc"], { languageName: "json" });
