// A receiver that verifies what Doorstep delivers, and writes one line of JSON about each
// request to standard output. The first line is {"port": N}. The keys come in SIGNING_KEYS,
// a JSON object of texts by verifier.
//
// Paths are /VERIFIER/MODE. MODE says what the first request with an id is answered: first
// 204, retry 500, dead 422. Later ones are answered 204. What does not verify is answered
// 401.

import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { verifiers } from "./verifiers.mjs";

const keys = JSON.parse(process.env.SIGNING_KEYS);
const firstAnswer = { first: 204, retry: 500, dead: 422 };
const seen = new Set();

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

// check is "" where a verifier takes the request, and else why it does not.
async function check(name, body, headers) {
  try {
    await verifiers[name](body, headers, keys[name]);
    return "";
  } catch (e) {
    return String(e.message) || "refused";
  }
}

async function answer(request, body) {
  const [, verifier, mode] = request.url.split("/");
  const headers = request.headers;
  const line = {
    verifier,
    mode,
    id: headers["webhook-id"],
    attempt: Number(headers["doorstep-attempt"]),
    replay: headers["doorstep-replay"] ?? "",
    contentType: headers["content-type"] ?? "",
    ceType: headers["ce-type"] ?? "",
    ceId: headers["ce-id"] ?? "",
    sha256: createHash("sha256").update(body).digest("hex"),
    error: await check(verifier, body, headers),
    // The same verifier must refuse the same request with one byte more, so that it is known
    // to look.
    changedError: await check(verifier, Buffer.concat([body, Buffer.from(" ")]), headers),
  };
  line.verified = line.error === "";
  let status = line.verified ? 204 : 401;
  const key = `${verifier} ${mode} ${line.id}`;
  const tampered = line.id === "tampered";
  if (!tampered && !seen.has(key)) {
    seen.add(key);
    // A library that can't take a body is no reason for another answer: the Go side
    // decides what must verify.
    status = firstAnswer[mode];
  } else if (!tampered) {
    status = 204;
  }
  line.status = status;
  say(line);
  return status;
}

const server = createServer((request, response) => {
  const chunks = [];
  request.on("data", (c) => chunks.push(c));
  request.on("end", async () => {
    response.writeHead(await answer(request, Buffer.concat(chunks))).end();
  });
});
server.listen(0, "127.0.0.1", () => say({ port: server.address().port }));

// Ends with the process that started it.
process.stdin.on("end", () => process.exit(0)).resume();
