// A receiver that verifies what Doorstep delivers with other people's libraries, each
// used as its documentation says, and writes one line of JSON about each request to
// standard output. The first line is {"port": N}.
//
// Paths are /LIBRARY/MODE. LIBRARY is standardwebhooks, svix, stripe, octokit (GitHub's),
// or bytes (HMAC by node's crypto over the raw bytes, by the specification and no library). MODE says what the
// first request with an id is answered: first 204, retry 500, dead 422. Later ones are
// answered 204. What does not verify is answered 401.

import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import { verify as verifyGitHub } from "@octokit/webhooks-methods";
import { Webhook as StandardWebhook } from "standardwebhooks";
import Stripe from "stripe";
import { Webhook as SvixWebhook } from "svix";

// For Stripe and GitHub the text itself is the key, for the others what it decodes to.
const secret = process.env.SIGNING_KEY;
const stripe = new Stripe("sk_test_none");
const firstAnswer = { first: 204, retry: 500, dead: 422 };
const seen = new Set();

// Each takes the raw body and the headers, and throws, or rejects, when the signature is wrong.
const libraries = {
  // As documented: the raw body as a Buffer.
  standardwebhooks: (body, headers) =>
    new StandardWebhook(secret).verify(body, headers, { jsonParse: false }),

  // As documented: the raw body as text. This version always parses the body once the
  // signature has been found right, so a SyntaxError is a body that isn't JSON under a
  // right signature.
  svix: (body, headers) => {
    try {
      new SvixWebhook(secret).verify(body.toString("utf8"), headers);
    } catch (e) {
      if (!(e instanceof SyntaxError)) throw e;
    }
  },

  // As documented: the raw body as a Buffer. It parses the body once the signature has been
  // found right, as svix does.
  stripe: (body, headers) => {
    try {
      stripe.webhooks.constructEvent(body, headers["stripe-signature"], secret);
    } catch (e) {
      if (!(e instanceof SyntaxError)) throw e;
    }
  },

  // As documented: the raw body as text.
  octokit: async (body, headers) => {
    if (!(await verifyGitHub(secret, body.toString("utf8"), headers["x-hub-signature-256"]))) {
      throw new Error("the signature is not right");
    }
    if (headers["x-github-delivery"] !== headers["webhook-id"]) throw new Error("x-github-delivery is not the webhook-id");
    if (!/^(first|retry|dead)\./.test(headers["x-github-event"])) throw new Error("x-github-event is not the event's type");
  },

  bytes: (body, headers) => {
    const key = Buffer.from(secret.slice("whsec_".length), "base64");
    const mac = createHmac("sha256", key);
    mac.update(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.`).update(body);
    const want = mac.digest();
    const right = headers["webhook-signature"].split(" ").some((s) => {
      const got = Buffer.from(s.replace(/^v1,/, ""), "base64");
      return got.length === want.length && timingSafeEqual(got, want);
    });
    if (!right) throw new Error("no signature is right");
  },
};

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

async function answer(request, body) {
  const [, library, mode] = request.url.split("/");
  const headers = request.headers;
  const line = {
    library,
    mode,
    id: headers["webhook-id"],
    attempt: Number(headers["doorstep-attempt"]),
    replay: headers["doorstep-replay"] ?? "",
    contentType: headers["content-type"] ?? "",
    ceType: headers["ce-type"] ?? "",
    ceId: headers["ce-id"] ?? "",
    sha256: createHash("sha256").update(body).digest("hex"),
    verified: true,
    error: "",
  };
  let status = 204;
  try {
    await libraries[library](body, headers);
  } catch (e) {
    line.verified = false;
    line.error = String(e.message);
    status = 401;
  }
  const key = `${library} ${mode} ${line.id}`;
  if (!seen.has(key)) {
    seen.add(key);
    // A library that can't take a body is no reason for another answer: the Go side
    // decides what must verify.
    if (headers["webhook-id"] !== "tampered") status = firstAnswer[mode];
  } else if (!line.verified && headers["webhook-id"] !== "tampered") {
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
