// The verifiers: other people's libraries, each used as its documentation says, and, for
// senders whose libraries do far more than verify, their signatures as they document them,
// by node's crypto and none of Doorstep's code.
//
// Each takes the raw body, the headers and the key's text, and throws when the signature is
// wrong.

import { verify as verifyGitHub } from "@octokit/webhooks-methods";
import { createHmac, createPublicKey, timingSafeEqual, verify as verifyAsymmetric } from "node:crypto";
import { Webhook as StandardWebhook } from "standardwebhooks";
import Stripe from "stripe";
import { Webhook as SvixWebhook } from "svix";

const stripe = new Stripe("sk_test_none");

// The libraries svix and stripe always parse the body once the signature has been found
// right, so a SyntaxError is a body that isn't JSON under a right signature.
function unlessParsing(verify) {
  try {
    verify();
  } catch (e) {
    if (!(e instanceof SyntaxError)) throw e;
  }
}

// equal throws unless two texts are the same.
function equal(want, got) {
  const [a, b] = [Buffer.from(want), Buffer.from(got ?? "")];
  if (a.length !== b.length || !timingSafeEqual(a, b)) throw new Error("the signature is wrong");
}

// fresh throws unless a time in milliseconds is within five minutes of now.
function fresh(time) {
  if (!(Math.abs(Date.now() - time) <= 300_000)) throw new Error("the timestamp is not of now");
}

// hmac is a signature over texts and buffers, one after another.
function hmac(algorithm, key, encoding, ...parts) {
  const mac = createHmac(algorithm, key);
  for (const part of parts) mac.update(part);
  return mac.digest(encoding);
}

// Of a DER public key for Ed25519, what stands before its 32 bytes (RFC 8410).
const ed25519 = Buffer.from("302a300506032b6570032100", "hex");

export const verifiers = {
  // The raw body as a Buffer.
  standardwebhooks: (body, headers, key) => new StandardWebhook(key).verify(body, headers, { jsonParse: false }),

  // The raw body as text.
  svix: (body, headers, key) => unlessParsing(() => new SvixWebhook(key).verify(body.toString("utf8"), headers)),

  // The raw body as a Buffer.
  stripe: (body, headers, key) =>
    unlessParsing(() => stripe.webhooks.constructEvent(body, headers["stripe-signature"], key)),

  // The raw body as text.
  octokit: async (body, headers, key) => {
    if (headers["x-github-delivery"] !== headers["webhook-id"]) throw new Error("x-github-delivery is not the id");
    if (!/^(first|retry|dead)\./.test(headers["x-github-event"])) throw new Error("x-github-event is not the type");
    if (!(await verifyGitHub(key, body.toString("utf8"), headers["x-hub-signature-256"])))
      throw new Error("the signature is wrong");
  },

  // Standard Webhooks 1.0.0, symmetric.
  bytes: (body, headers, key) => {
    const { "webhook-id": id, "webhook-timestamp": time, "webhook-signature": signature } = headers;
    fresh(time * 1000);
    const secret = Buffer.from(key.slice("whsec_".length), "base64");
    equal("v1," + hmac("sha256", secret, "base64", `${id}.${time}.`, body), signature);
  },

  // Standard Webhooks 1.0.0, asymmetric: the receiver has the public key only.
  asymmetric: (body, headers, key) => {
    const { "webhook-id": id, "webhook-timestamp": time, "webhook-signature": signature } = headers;
    fresh(time * 1000);
    const raw = Buffer.from(key.slice("whpk_".length), "base64");
    const publicKey = createPublicKey({ key: Buffer.concat([ed25519, raw]), format: "der", type: "spki" });
    const [version, encoded] = signature.split(",");
    const signed = Buffer.concat([Buffer.from(`${id}.${time}.`), body]);
    if (version !== "v1a" || !verifyAsymmetric(null, signed, publicKey, Buffer.from(encoded, "base64")))
      throw new Error("the signature is wrong");
  },

  // Two keys at once: both have signed, each as if it were alone.
  both: (body, headers, key) => {
    const { "webhook-id": id, "webhook-timestamp": time, "webhook-signature": signature } = headers;
    const want = key.split(" ").map((one) => {
      const secret = Buffer.from(one.slice("whsec_".length), "base64");
      return "v1," + hmac("sha256", secret, "base64", `${id}.${time}.`, body);
    });
    equal(want.join(" "), signature);
  },

  shopify: (body, headers, key) => equal(hmac("sha256", key, "base64", body), headers["x-shopify-hmac-sha256"]),

  slack: (body, headers, key) => {
    const time = headers["x-slack-request-timestamp"];
    fresh(time * 1000);
    equal("v0=" + hmac("sha256", key, "hex", `v0:${time}:`, body), headers["x-slack-signature"]);
  },

  paddle: (body, headers, key) => {
    const parts = Object.fromEntries(headers["paddle-signature"].split(";").map((part) => part.split("=")));
    fresh(parts.ts * 1000);
    equal(hmac("sha256", key, "hex", `${parts.ts}:`, body), parts.h1);
  },

  zendesk: (body, headers, key) => {
    const time = headers["x-zendesk-webhook-signature-timestamp"];
    fresh(Date.parse(time));
    equal(hmac("sha256", key, "base64", time, body), headers["x-zendesk-webhook-signature"]);
  },

  linear: (body, headers, key) => equal(hmac("sha256", key, "hex", body), headers["linear-signature"]),

  twitch: (body, headers, key) => {
    const time = headers["twitch-eventsub-message-timestamp"];
    fresh(Date.parse(time));
    const want = "sha256=" + hmac("sha256", key, "hex", headers["webhook-id"], time, body);
    equal(want, headers["twitch-eventsub-message-signature"]);
  },

  // The corners of what HMAC can be told: SHA-512, a key in hex, a time in milliseconds, the
  // body in the middle.
  sha512: (body, headers, key) => {
    const time = headers["x-sent-at"];
    fresh(Number(time));
    const secret = Buffer.from(key, "hex");
    equal(hmac("sha512", secret, "base64", `${time}|`, body, `|${headers["webhook-id"]}`), headers["x-signature"]);
  },

  // And SHA-1, a key in base64, the id in the prefix.
  sha1: (body, headers, key) => {
    const secret = Buffer.from(key, "base64");
    equal(`id=${headers["webhook-id"]};` + hmac("sha1", secret, "hex", body), headers["x-hub-signature"]);
  },
};
