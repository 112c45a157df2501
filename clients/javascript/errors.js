/** A refusal of the gateway, or a fault on the way to it; `code` says which. Wrong arguments are a TypeError. */
export class GateError extends Error {
  name = "GateError";

  constructor(code, message, retryAfterMs = null) {
    super(message);
    this.code = code;
    this.retryAfterMs = retryAfterMs;
  }
}
