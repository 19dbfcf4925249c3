// A receiver on Node's standard library alone. ../README.md says why it does what it does.
import { createHash, createHmac, randomUUID, timingSafeEqual } from "node:crypto";
import { link, open, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { createServer } from "node:http";

const key = Buffer.from(process.env.SIGNING_KEY.replace(/^whsec_/, ""), "base64");
if (key.length < 24) throw new Error("SIGNING_KEY must be the endpoint's key");
const inbox = process.env.INBOX; // a folder; one file a message
const folder = await open(inbox);
let todo = Promise.resolve();

function verify(headers, body) {
  const { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signatures = "" } = headers;
  if (!id || !/^[0-9]{1,12}$/.test(timestamp)) return "webhook-id or webhook-timestamp is missing or malformed";
  const off = Math.floor(Date.now() / 1000) - Number(timestamp);
  if (Math.abs(off) > 300) return `webhook-timestamp is ${off} seconds off, 300 are allowed`;
  const mac = createHmac("sha256", key).update(`${id}.${timestamp}.`, "latin1").update(body); // headers are bytes
  const want = Buffer.from("v1," + mac.digest("base64"));
  const given = signatures.split(" ").map((signature) => Buffer.from(signature, "latin1")); // one for each key
  if (!given.some((signature) => signature.length === want.length && timingSafeEqual(signature, want)))
    return "no signature is right; verify the raw body, with this endpoint's key";
}

async function store(id, body) { // ends once the message is on the disk, whoever brought it there
  const name = `${inbox}/${createHash("sha256").update(id, "latin1").digest("hex")}`; // any id makes a safe name
  const temporary = `${inbox}/.new-${randomUUID()}`;
  try {
    await writeFile(temporary, Buffer.concat([Buffer.from(id + "\n", "latin1"), body]));
    const file = await open(temporary);
    await file.sync().finally(() => file.close());
    await link(temporary, name); // of many at once, one makes the name
    later(name);
  } catch (error) {
    if (error.code !== "EEXIST") throw error; // a duplicate is a success
  } finally {
    await rm(temporary, { force: true });
  }
  await folder.sync();
}

function later(name) {
  todo = todo.then(() => work(name)).catch(console.error); // what fails is left for the next start
}

async function work(name) { // one message after another; a file that was emptied is one that is done
  const message = await readFile(name);
  if (message.length === 0) return;
  const end = message.indexOf("\n");
  console.log("done", message.toString("latin1", 0, end), message.length - end - 1); // your work goes here
  await truncate(name);
}

const server = createServer((request, response) => {
  const chunks = [];
  let length = 0;
  request.on("data", (chunk) => (length += chunk.length) > 1 << 20 || chunks.push(chunk));
  request.on("end", async () => {
    if (length > 1 << 20) return response.writeHead(413).end();
    const body = Buffer.concat(chunks); // the raw body, before any parser
    const problem = verify(request.headers, body);
    if (problem) return response.writeHead(401).end(problem);
    const error = await store(request.headers["webhook-id"], body).catch((error) => error);
    if (error) console.error(error);
    response.writeHead(error ? 503 : 204).end(error && "not stored, send it again");
  });
});

for (const name of await readdir(inbox)) if (/^[0-9a-f]{64}$/.test(name)) later(`${inbox}/${name}`); // done or not
server.listen(process.env.LISTEN.split(":")[1], process.env.LISTEN.split(":")[0]);
