// What the programs for Node share: their arguments LIBRARY PORT PASSWORD PROTOCOL CONTROL (what CONTROL is for says libraries.rs),
// how they wait, and how the server is started again.
"use strict";

const fs = require("node:fs");
const path = require("node:path");

const [library, port, password, protocol, control] = process.argv.slice(2);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(what, holds, seconds = 20) {
  for (let n = 0; n < 50 * seconds; n++) {
    if (await holds()) return;
    await sleep(20);
  }
  throw new Error(`never: ${what}`);
}

async function restart() {
  fs.writeFileSync(path.join(control, "restart"), "");
  await until("a new server", () => fs.existsSync(path.join(control, "restarted")));
}

module.exports = { library, port: Number(port), password, protocol: Number(protocol), sleep, until, restart };
